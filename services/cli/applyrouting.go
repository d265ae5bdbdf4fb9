package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/clients/go/linktable"
)

// desiredRules contains a link's rules in a file. An empty list removes all rules.
type desiredRules []client.LinkRule

// UnmarshalYAML reads rules that use the API's field names. It converts dates to numbers.
func (r *desiredRules) UnmarshalYAML(n *yaml.Node) error {
	var v any
	if err := n.Decode(&v); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("line %d: rules: %w", n.Line, err)
	}
	rules, err := linktable.ParseRules(string(text))
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	for i := range rules {
		when := &rules[i].When
		for _, at := range []**client.Time{&when.From, &when.Until} {
			if *at, err = atTime(*at); err != nil {
				return fmt.Errorf("line %d: %w", n.Line, err)
			}
		}
	}
	*r = rules
	return nil
}

// addRouting sets a new link's routing fields.
func (l desiredLink) addRouting(in *client.LinkCreate) {
	in.RedirectType, in.ExpiredURL, in.Password = l.RedirectType, text(l.ExpiredURL), text(l.Password)
	if l.ForwardQuery != nil {
		in.ForwardQuery = *l.ForwardQuery
	}
	if l.ForwardPath != nil {
		in.ForwardPath = *l.ForwardPath
	}
	if l.StartsAt != nil && *l.StartsAt != "never" {
		begin, _ := endOf(*l.StartsAt, time.Time{}) // checked when the file was read
		in.StartsAt = client.At(begin)
	}
	if l.MaxClicks != nil && *l.MaxClicks != 0 {
		in.MaxClicks = l.MaxClicks
	}
	if l.Rules != nil {
		in.Rules = *l.Rules
	}
}

// routingChanges compares the routing fields in the file with the link's. A link's password cannot
// be read, so a password in the file is set only if the link does not have one.
func (l desiredLink) routingChanges(have *client.Link, change *client.LinkUpdate, differ func(field, was, is string)) {
	if l.RedirectType != nil && *l.RedirectType != int64(have.RedirectType) {
		change.RedirectType = client.Set(*l.RedirectType)
		differ("redirectType", strconv.Itoa(have.RedirectType), strconv.FormatInt(*l.RedirectType, 10))
	}
	for _, f := range []struct {
		name string
		want *bool
		have bool
		to   *client.Field[bool]
	}{{"forwardQuery", l.ForwardQuery, have.ForwardQuery, &change.ForwardQuery},
		{"forwardPath", l.ForwardPath, have.ForwardPath, &change.ForwardPath}} {
		if f.want != nil && *f.want != f.have {
			*f.to = client.Set(*f.want)
			differ(f.name, strconv.FormatBool(f.have), strconv.FormatBool(*f.want))
		}
	}
	changeMoment("startsAt", l.StartsAt, have.StartsAt, &change.StartsAt, differ)
	if want, has := text(l.Password), have.HasPassword; l.Password != nil && (want != "") != has {
		change.Password = client.Set(want)
		if want == "" {
			change.Password = client.Clear[string]()
		}
		said := map[bool]string{true: "set", false: "none"}
		differ("password", said[has], said[!has])
	}
	most := int64(0)
	if have.MaxClicks != nil {
		most = *have.MaxClicks
	}
	if l.MaxClicks != nil && *l.MaxClicks != most {
		change.MaxClicks = client.Set(*l.MaxClicks)
		if *l.MaxClicks == 0 {
			change.MaxClicks = client.Clear[int64]()
		}
		differ("maxClicks", strconv.FormatInt(most, 10), strconv.FormatInt(*l.MaxClicks, 10))
	}
	if l.Rules == nil {
		return
	}
	if want := []client.LinkRule(*l.Rules); tidied(want) != tidied(have.Rules) {
		change.Rules = client.Set(want)
		differ("rules", rulesText(have.Rules), rulesText(want))
	}
}

// changeMoment compares a time in the file with the link's time. nil means that the time is not
// set.
func changeMoment(
	field string, want *string, have *client.Time, to *client.Field[client.Time], differ func(field, was, is string),
) {
	switch {
	case want == nil:
	case *want == "never":
		if have != nil {
			*to = client.Clear[client.Time]()
			differ(field, when(have), "never")
		}
	default:
		at, _ := endOf(*want, time.Time{}) // checked when the file was read
		if have == nil || *have != client.At(at) {
			*to = client.Set(client.At(at))
			differ(field, cmp.Or(when(have), "never"), at.UTC().Format(time.DateTime))
		}
	}
}

// tidied returns a normal form of rules, in which equal rules are identical strings. The service
// trims names and returns countries in upper case, languages in canonical case, and mobile as
// phone.
func tidied(rules []client.LinkRule) string {
	out := make([]client.LinkRule, len(rules))
	for i, r := range rules {
		r.Name = strings.TrimSpace(r.Name)
		r.When.Country = mapped(r.When.Country, strings.ToUpper)
		r.When.Language = mapped(r.When.Language, strings.ToLower)
		r.When.Device = mapped(r.When.Device, func(s string) string {
			if s == "mobile" {
				return "phone"
			}
			return s
		})
		out[i] = r
	}
	return rulesText(out)
}

func mapped(list []string, change func(string) string) (out []string) {
	for _, s := range list {
		out = append(out, change(s))
	}
	return out
}
