package web

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// temporary is the default redirect type.
const temporary = "302"

var redirectTypes = []string{temporary, "301", "308"}

// decisionsForm returns the values of the form's fields for the settings that decide the outcome of
// a visit. The rules are combined into one string, which the page shows if somebody else has
// changed them. Each rule's fields are in [ruleForm].
func decisionsForm(l *client.Link) map[string]string {
	form := map[string]string{
		"startsAt": toMinute(l.StartsAt), "expiresAt": toMinute(l.ExpiresAt), "maxClicks": "", "expiredUrl": str(l.ExpiredURL),
		"redirectType": strconv.Itoa(l.RedirectType), "forwardQuery": strconv.FormatBool(l.ForwardQuery),
		"forwardPath": strconv.FormatBool(l.ForwardPath), "rules": strings.Join(ruleTexts(l.Rules), " · "),
	}
	if l.MaxClicks != nil {
		form["maxClicks"] = strconv.FormatInt(*l.MaxClicks, 10)
	}
	return form
}

// Deciding returns the fields in one section of the form. See decides.html.
func (v view) Deciding(section string) []field {
	plain := func(name, kind string, max int) field {
		return v.With(field{Name: name, Key: "decide." + strings.ToLower(name), Kind: kind, Value: v.Form[name], Max: max})
	}
	switch section {
	case "time":
		return []field{
			plain("startsAt", "time", 0), plain("expiresAt", "time", 0),
			plain("maxClicks", "number", 13), plain("expiredUrl", "url", 8192),
		}
	case "redirect":
		kind := plain("redirectType", "select", 0)
		kind.Value = cmp.Or(kind.Value, temporary)
		kind = v.With(kind.choose("decide.redirecttype.", redirectTypes...))
		return []field{kind, plain("forwardQuery", "check", 0), plain("forwardPath", "check", 0)}
	case "password":
		// Keep a typed password in the form. Otherwise, a person who corrects another field
		// would save the link without a password.
		return []field{plain("password", "password", 256)}
	}
	return nil
}

// decisions reads the form's fields. It returns the changes and the errors by field. stored is
// the link before the change, or an empty link if the form creates one. decisions also replaces the
// form's values with those that the page shows if the form is rejected.
func (r *request) decisions(stored *client.Link) (change map[string]any, bad []apierr.Detail) {
	change = map[string]any{}
	refuse := func(name, message string) {
		bad = append(bad, apierr.Detail{Field: name, Code: apierr.InvalidValue, Message: text.Get(message)})
	}
	for name, was := range map[string]*client.Time{"startsAt": stored.StartsAt, "expiresAt": stored.ExpiresAt} {
		if !r.form.Has(name) {
			continue
		}
		at, ok := r.minute(name, was)
		if !ok {
			refuse(name, "form.time")
			continue
		}
		change[name] = at
		r.form.Set(name, toMinute(at))
	}
	if !r.form.Has(ruleCount) { // an older release's page without these fields must not reset them
		return change, bad
	}
	change["expiredUrl"] = orNull(strings.TrimSpace(r.form.Get("expiredUrl")))
	change["redirectType"], _ = strconv.Atoi(r.form.Get("redirectType"))
	for _, name := range []string{"forwardQuery", "forwardPath"} {
		on := r.form.Get(name) == "true"
		change[name] = on
		r.form.Set(name, strconv.FormatBool(on)) // an unchecked box sends nothing
	}
	change["maxClicks"] = nil
	if typed := strings.TrimSpace(r.form.Get("maxClicks")); typed != "" {
		n, err := strconv.ParseInt(strings.NewReplacer(",", "", " ", "").Replace(typed), 10, 64)
		if err != nil {
			refuse("maxClicks", "decide.maxclicks.bad")
		}
		change["maxClicks"] = n
	}
	switch password := r.form.Get("password"); {
	case password != "" && r.form.Get("passwordRemove") != "":
		refuse("password", "decide.password.both")
	case password != "":
		change["password"] = password
	case r.form.Get("passwordRemove") != "":
		change["password"] = nil
	}
	rules, wrong := r.rules()
	bad = append(bad, wrong...)
	// Do not send unchanged rules: the API would check their URLs against the current blocklist and
	// might reject them.
	shown := strings.Join(ruleTexts(rules), " · ")
	if len(wrong) > 0 || shown != strings.Join(ruleTexts(stored.Rules), " · ") {
		change["rules"] = rules
	}
	r.form.Set("rules", shown)
	return change, bad
}

// given removes from the change all values that a new link has by default.
func given(change map[string]any) map[string]any {
	for name, value := range change {
		if at, ok := value.(*client.Time); ok && at == nil || value == nil || value == false || value == 302 {
			delete(change, name)
		}
	}
	return change
}
