package web

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// Fields in forms that contain rules. A rule's fields have the same names as in the API's errors,
// such as rules.0.when.country.
const (
	ruleCount  = "ruleCount"  // the number of rules in the form
	ruleButton = "ruleButton" // the button that adds, removes or moves a rule, such as "up.2"
	maxRules   = 20
)

var (
	ruleDevices = []string{"desktop", "phone", "tablet"}
	ruleSystems = []string{"windows", "macos", "linux", "ios", "android", "chromeos", "other"}
)

// typedRule maps the names of a rule's fields, without the prefix "rules.0.", to their values.
type typedRule map[string][]string

func (t typedRule) get(name string) string {
	if len(t[name]) == 0 {
		return ""
	}
	return strings.TrimSpace(unix(t[name][0]))
}

// ruleForm is a rule in a form.
type ruleForm struct {
	N, Of            int // the rule's index and the number of rules
	Name             string
	Target, Visitors []field // the rule's destination and its conditions
	Time             []field
}

// Place returns the rule's position, starting at 1.
func (f ruleForm) Place() int { return f.N + 1 }
func (f ruleForm) Last() bool { return f.N == f.Of-1 }

// typedRules returns the rules in the form, at most as many as a link may have.
func (r *request) typedRules() []typedRule {
	n, _ := strconv.Atoi(r.form.Get(ruleCount))
	out := make([]typedRule, max(0, min(n, maxRules)))
	for i := range out {
		out[i] = typedRule{}
	}
	for name, values := range r.form {
		rest, ok := strings.CutPrefix(name, "rules.")
		place, rest, dotted := strings.Cut(rest, ".")
		if i, err := strconv.Atoi(place); ok && dotted && err == nil && i >= 0 && i < len(out) {
			out[i][rest] = values
		}
	}
	return out
}

// typedFrom returns the field values for a stored rule.
func typedFrom(rule *client.LinkRule) typedRule {
	w := &rule.When
	t := typedRule{
		"name": {rule.Name}, "url": {rule.URL}, "when.device": w.Device, "when.system": w.System,
		"when.country": {strings.Join(w.Country, ", ")}, "when.language": {strings.Join(w.Language, ", ")},
		"when.query": {strings.Join(conditions(w.Query), "\n")},
	}
	if w.Percent > 0 {
		t["when.percent"] = []string{strconv.Itoa(w.Percent)}
	}
	for name, at := range map[string]*client.Time{"when.from": w.From, "when.until": w.Until} {
		if at != nil {
			t[name], t[name+"Was"] = []string{toMinute(at)}, []string{strconv.FormatInt(at.Time().UnixMilli(), 10)}
		}
	}
	return t
}

// moment reads one of the rule's time fields.
func (t typedRule) moment(name string) (*client.Time, bool) {
	var was *client.Time
	if ms, err := strconv.ParseInt(t.get(name+"Was"), 10, 64); err == nil {
		was = new(client.At(time.UnixMilli(ms)))
	}
	return readMinute(t.get(name), t.get(name+"Ms"), was)
}

// form returns the rule's fields. The rule is at index i in a list of n rules.
func (t typedRule) form(i, n int, focus bool) ruleForm {
	at := fmt.Sprintf("rules.%d.", i)
	plain := func(name, kind string, max int) field {
		return field{Name: at + name, Key: "rule." + strings.TrimPrefix(name, "when."), Kind: kind, Value: t.get(name), Max: max}
	}
	moment := func(name string) field {
		f := plain(name, "time", 0)
		f.Was = t.get(name + "Was")
		if at, ok := t.moment(name); ok {
			f.Value = toMinute(at)
		}
		return f
	}
	boxes := func(name, prefix string, values []string) field {
		f := plain(name, "boxes", 0)
		f.Choices = options(prefix, values, t[name]...)
		return f
	}
	name := plain("name", "text", 100)
	name.Focus = focus
	return ruleForm{
		N: i, Of: n, Name: t.get("name"),
		Target: []field{name, plain("url", "url", 8192)},
		Visitors: []field{
			boxes("when.device", "rule.device.", ruleDevices), boxes("when.system", "rule.system.", ruleSystems),
			plain("when.country", "text", 0), plain("when.language", "text", 0),
			plain("when.query", "lines", 0), plain("when.percent", "number", 3),
		},
		Time: []field{moment("when.from"), moment("when.until")},
	}
}

// ruleForms returns the forms for all rules. The rule at index focus is focused when the page
// opens. -1 means none.
func ruleForms(rules []typedRule, focus int) []ruleForm {
	out := make([]ruleForm, len(rules))
	for i, t := range rules {
		out[i] = t.form(i, len(rules), i == focus)
	}
	return out
}

func storedRules(rules []client.LinkRule) (out []typedRule) {
	for i := range rules {
		out = append(out, typedFrom(&rules[i]))
	}
	return out
}

// keepRules shows the rules from a rejected form again.
func keepRules(r *request, data map[string]any) {
	if r.form.Has(ruleCount) {
		data["Rules"] = ruleForms(r.typedRules(), -1)
	}
}

// rearranged shows the form again after the person has pressed a button that adds, removes or
// moves a rule. It does not store anything. The form keeps the version that the person saw, so
// saving still detects a conflict.
func (p page) rearranged(r *request, stored *client.Link) error {
	v, err := p.view(r)
	if err != nil {
		return err
	}
	r.decisions(stored) // converts the form's values to the page's format, such as times in UTC
	if v.Rev != "" {
		v.Rev, v.Was = r.form.Get(revField), r.form.Get(wasField)
	}
	v.Form = r.typedForm()
	rules, focus := rearrange(r.typedRules(), r.form.Get(ruleButton))
	data := v.Data.(map[string]any)
	data["Rules"], data["AddFocus"] = ruleForms(rules, focus), len(rules) == 0
	return r.render(http.StatusOK, p.template, v)
}

// rearrange applies the button that was pressed. It returns the rules and the index of the rule to
// focus, or -1. An unknown button has no effect.
func rearrange(rules []typedRule, button string) ([]typedRule, int) {
	what, place, _ := strings.Cut(button, ".")
	i, err := strconv.Atoi(place)
	switch there := err == nil && i >= 0 && i < len(rules); {
	case what == "add" && len(rules) < maxRules:
		return append(rules, typedRule{}), len(rules)
	case what == "remove" && there:
		return slices.Delete(rules, i, i+1), min(i, len(rules)-2)
	case what == "up" && there && i > 0:
		rules[i-1], rules[i] = rules[i], rules[i-1]
		return rules, i - 1
	case what == "down" && there && i < len(rules)-1:
		rules[i], rules[i+1] = rules[i+1], rules[i]
		return rules, i + 1
	}
	return rules, -1
}

// rules returns the rules in the form. It returns errors only for values that cannot be sent
// to the API. The API checks all other values.
func (r *request) rules() (rules []client.LinkRule, bad []apierr.Detail) {
	rules = []client.LinkRule{}
	for i, t := range r.typedRules() {
		refuse := func(name, message string) {
			field := fmt.Sprintf("rules.%d.%s", i, name)
			bad = append(bad, apierr.Detail{Field: field, Code: apierr.InvalidValue, Message: text.Get(message)})
		}
		w := client.LinkRuleWhen{
			Country: commaList(t.get("when.country")), Language: commaList(t.get("when.language")),
			Device: t["when.device"], System: t["when.system"],
		}
		var ok bool
		if w.Query, ok = readConditions(t.get("when.query")); !ok {
			refuse("when.query", "rule.query.bad")
		}
		if typed := t.get("when.percent"); typed != "" {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(typed, "%")))
			if err != nil || n < 1 || n > 99 {
				refuse("when.percent", "rule.percent.bad")
			}
			w.Percent = n
		}
		for name, to := range map[string]**client.Time{"when.from": &w.From, "when.until": &w.Until} {
			at, ok := t.moment(name)
			if !ok {
				refuse(name, "form.time")
			} else if at != nil {
				*to = at
			}
		}
		rules = append(rules, client.LinkRule{Name: t.get("name"), URL: t.get("url"), When: w})
	}
	return rules, bad
}

// escapeCondition escapes the characters with a special meaning in a condition, such as "="
// and spaces. All other characters remain readable.
func escapeCondition(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune("%+=", r) || unicode.IsSpace(r) || unicode.IsControl(r) {
			b.WriteString(url.QueryEscape(string(r)))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// conditions returns each condition on the visit's query as a name=value line, escaped as in
// a URL.
func conditions(query map[string]string) (lines []string) {
	for _, name := range slices.Sorted(maps.Keys(query)) {
		lines = append(lines, escapeCondition(name)+"="+escapeCondition(query[name]))
	}
	return lines
}

// readConditions parses the lines that [conditions] returns. A name without "=" means any
// value.
func readConditions(typed string) (map[string]string, bool) {
	query := map[string]string{}
	for _, line := range lines(typed) {
		name, value, valued := strings.Cut(line, "=")
		name, err := url.QueryUnescape(strings.TrimSpace(name))
		value, err2 := url.QueryUnescape(value)
		if _, twice := query[name]; err != nil || err2 != nil || name == "" || twice {
			return nil, false
		}
		if query[name] = value; !valued {
			query[name] = "*"
		}
	}
	return query, true
}

// ruleTexts describes each rule on one line.
func ruleTexts(rules []client.LinkRule) (out []string) {
	for i := range rules {
		rule, w := &rules[i], &rules[i].When
		var when []string
		say := func(name string, values ...string) {
			if len(values) > 0 {
				when = append(when, text.Get("rule."+name)+": "+strings.Join(values, ", "))
			}
		}
		named := func(prefix string, values []string) (out []string) {
			for _, v := range values {
				out = append(out, cmp.Or(map[bool]string{true: text.Get(prefix + v)}[text.Has(prefix+v)], v))
			}
			return out
		}
		say("device", named("rule.device.", w.Device)...)
		say("system", named("rule.system.", w.System)...)
		say("country", w.Country...)
		say("language", w.Language...)
		say("query", conditions(w.Query)...)
		if w.Percent != 0 {
			say("percent", strconv.Itoa(w.Percent))
		}
		for _, m := range []struct {
			name string
			at   *client.Time
		}{{"from", w.From}, {"until", w.Until}} {
			if m.at != nil {
				say(m.name, m.at.Time().Format("2006-01-02 15:04:05.999 MST"))
			}
		}
		out = append(out, rule.Name+" → "+rule.URL+" ("+strings.Join(when, "; ")+")")
	}
	return out
}
