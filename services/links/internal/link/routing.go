package link

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Routing contains all of a link's settings for visits, except its destination and its expiry. A
// link without such settings has no Routing. A Routing must not be changed once it is part of a
// link.
type Routing struct {
	// RedirectType is the HTTP status 301 or 308; 0 means 302.
	RedirectType int
	ForwardQuery bool // forward the visitor's query; see [WithQuery]
	ForwardPath  bool // forward the path after the slug; see [WithPath]
	StartsAt     Moment
	ExpiredURL   *URL // destination for visits after expiry, or nil
	Rules        []Rule
	Unread       bool   // the link has rules, but this copy, made for a list, omits them
	Password     string // hash from libs/password; "" if there is no password
	MaxClicks    int64  // maximum number of redirects over the link's lifetime; 0 means no limit
	// SplitKey ensures that different links divide their visitors differently; see [Visit.Place].
	SplitKey string
}

// DefaultRedirect is the HTTP status for a link without a redirect type.
const DefaultRedirect = 302

// ParseRedirectType returns the [Routing.RedirectType] for an HTTP status: 0 for 302, 301 for 301
// and 308 for 308. It rejects every other number.
func ParseRedirectType(status float64) (int, *apierr.Detail) {
	switch status {
	case DefaultRedirect:
		return 0, nil
	case 301, 308:
		return int(status), nil
	}
	return 0, &apierr.Detail{Code: apierr.NotAllowed, Message: "Use 301, 302 or 308."}
}

// Limits on a routing.
const (
	MaxMaxClicks = 1_000_000_000
	MaxRules     = 20
	MaxRuleBytes = 16 << 10 // for all of a link's rules in total
	MaxRuleName  = 100      // in code points
)

// Rule redirects visits that meet all its conditions to its own destination.
type Rule struct {
	Name string
	When When
	URL  URL
}

// When contains the conditions of a rule. An empty condition is always met. A condition with
// several values is met if any of them matches.
type When struct {
	Countries   []string // two capital letters
	Devices     []Device // Desktop, Mobile or Tablet
	Systems     []System
	Languages   []string          // BCP 47
	Query       map[string]string // parameters in the visit; "*" means any value
	From, Until Moment            // From is inclusive, Until is exclusive
	Percent     int               // share of the visitors; 0 means all
}

// empty reports whether a rule with these conditions matches every visit.
func (w *When) empty() bool {
	return len(w.Countries)+len(w.Devices)+len(w.Systems)+len(w.Languages)+len(w.Query) == 0 &&
		!w.From.Set && !w.Until.Set && w.Percent == 0
}

// Route returns a copy of the link's routing. The caller may change the copy and set it with
// [Link.SetRoute].
func (l *Link) Route() Routing {
	if l.Routing == nil {
		return Routing{}
	}
	return *l.Routing
}

// SetRoute sets the link's routing. A routing without any settings becomes nil, so a plain link
// stays plain.
func (l *Link) SetRoute(r Routing) {
	if r.plain() {
		l.Routing = nil
		return
	}
	l.Routing = &r
}

func (r *Routing) plain() bool {
	return r.RedirectType == 0 && !r.ForwardQuery && !r.ForwardPath && !r.StartsAt.Set && r.ExpiredURL == nil && len(r.Rules) == 0 &&
		r.Password == "" && r.MaxClicks == 0
}

// Equal reports whether both routings have the same settings.
func (r *Routing) Equal(other *Routing) bool {
	if r == nil || other == nil {
		return r == other
	}
	sameURL := r.ExpiredURL == other.ExpiredURL || r.ExpiredURL != nil && other.ExpiredURL != nil && *r.ExpiredURL == *other.ExpiredURL
	return sameURL && r.RedirectType == other.RedirectType && r.ForwardQuery == other.ForwardQuery &&
		r.ForwardPath == other.ForwardPath && r.Password == other.Password && r.MaxClicks == other.MaxClicks && r.StartsAt == other.StartsAt && slices.EqualFunc(r.Rules, other.Rules, Rule.equal)
}

func (r Rule) equal(other Rule) bool {
	a, b := r.When, other.When
	return r.Name == other.Name && r.URL == other.URL && slices.Equal(a.Countries, b.Countries) && slices.Equal(a.Devices, b.Devices) &&
		slices.Equal(a.Systems, b.Systems) && slices.Equal(a.Languages, b.Languages) && maps.Equal(a.Query, b.Query) &&
		a.From == b.From && a.Until == b.Until && a.Percent == b.Percent
}

// splits reports whether a rule needs the visitor's bucket; see [Visit.Place].
func (r *Routing) splits() bool {
	return slices.ContainsFunc(r.Rules, func(rule Rule) bool { return rule.When.Percent > 0 })
}

// Conflict is a pair of link fields with mutually exclusive values.
type Conflict struct {
	// Fields are the two fields. The response names the ones that the request contains. If Always
	// is set, it names only the first field.
	Fields [2]string
	Always bool
	Code   string
	Text   string
}

// Conflicts returns the pairs of the link's fields with mutually exclusive values.
func (l *Link) Conflicts() (all []Conflict) {
	r := l.Route()
	if r.StartsAt.Set && l.Expiry.Set && r.StartsAt.MS >= l.Expiry.MS {
		all = append(all, Conflict{
			Fields: [2]string{"startsAt", "expiresAt"}, Always: true, Code: apierr.NotAllowed,
			Text: "The link would expire before it starts. startsAt must be earlier than expiresAt.",
		})
	}
	together := func(field string, set bool) {
		if r.RedirectType != 0 && set {
			all = append(all, Conflict{
				Fields: [2]string{"redirectType", field}, Code: apierr.NotAllowed,
				Text: "Use redirectType 302 for a link with password or maxClicks. Browsers keep a 301 or 308 and do not ask again.",
			})
		}
	}
	together("password", r.Password != "")
	together("maxClicks", r.MaxClicks > 0)
	return all
}

// CheckRules checks and normalizes all of a link's rules. It trims names, and converts countries to
// upper case and languages to the case that BCP 47 recommends. countryKnown reports whether this
// installation can determine a visitor's country. The details name fields such as
// rules.0.when.country.
func CheckRules(rules []Rule, countryKnown bool) ([]Rule, []apierr.Detail) {
	var bad []apierr.Detail
	refuse := func(field, code, message string) {
		bad = append(bad, apierr.Detail{Field: field, Code: code, Message: message})
	}
	if len(rules) > MaxRules {
		return nil, []apierr.Detail{{Field: "rules", Code: apierr.TooLong, Message: "Use at most 20 rules.", Max: MaxRules}}
	}
	out, names, size := slices.Clone(rules), map[string]bool{}, 0
	for i := range out {
		rule, field := &out[i], fmt.Sprintf("rules.%d", i)
		if code, message := checkName(&rule.Name, names); code != "" {
			refuse(field+".name", code, message)
		}
		bad = append(bad, rule.When.check(field+".when", countryKnown)...)
		size += rule.size()
	}
	if size > MaxRuleBytes {
		bad = append(bad, apierr.Detail{
			Field: "rules", Code: apierr.TooLong, Message: "Use at most 16 KiB for all rules together.", Max: MaxRuleBytes,
		})
	}
	return out, bad
}

func checkName(name *string, taken map[string]bool) (code, message string) {
	*name = strings.TrimSpace(*name)
	folded := strings.ToLower(*name)
	switch {
	case *name == "":
		return apierr.TooShort, "Give the rule a name. It appears in the statistics."
	case utf8.RuneCountInString(*name) > MaxRuleName:
		return apierr.TooLong, "Use at most 100 characters."
	case strings.ContainsFunc(*name, unicode.IsControl):
		return apierr.InvalidValue, "Do not use control characters."
	case folded == "(other)" || folded == "(none)" || folded == "(unknown)":
		return apierr.Reserved, "This name is reserved in statistics. Choose another."
	case taken[folded]:
		return apierr.InvalidValue, "Another rule on this link already has this name."
	}
	taken[folded] = true
	return "", ""
}

// check normalizes the conditions and returns their problems.
func (w *When) check(field string, countryKnown bool) (bad []apierr.Detail) {
	refuse := func(name, code, message string) {
		bad = append(bad, apierr.Detail{Field: field + name, Code: code, Message: message})
	}
	if w.empty() {
		refuse("", apierr.TooShort, "Add at least one condition. A rule without a condition matches every visit and hides the rules after it.")
	}
	if len(w.Countries) > 0 && !countryKnown {
		refuse(".country", apierr.NotAllowed,
			"This installation cannot determine a visitor's country, because it has neither a country header nor a country database.")
	}
	w.Countries = slices.Clone(w.Countries)
	for i, code := range w.Countries {
		if w.Countries[i] = Country(code); w.Countries[i] == "" {
			refuse(fmt.Sprintf(".country.%d", i), apierr.InvalidValue, "Use a two-letter country code (ISO 3166-1), such as DE.")
		}
	}
	w.Languages = slices.Clone(w.Languages)
	for i, text := range w.Languages {
		tidy, ok := languageTag(text)
		if !ok {
			refuse(fmt.Sprintf(".language.%d", i), apierr.InvalidValue, "Use a language tag (BCP 47), such as de or pt-BR.")
		}
		w.Languages[i] = tidy
	}
	for name := range w.Query {
		if name == "" || strings.ContainsFunc(name+w.Query[name], unicode.IsControl) {
			refuse(".query", apierr.InvalidValue, "Use the name of a parameter, and values without control characters.")
		}
	}
	if w.From.Set && w.Until.Set && w.From.MS >= w.Until.MS {
		refuse(".from", apierr.NotAllowed, "This rule can never match. from must be earlier than until.")
	}
	return bad
}

// languageTag returns a well-formed tag in the case that BCP 47 recommends. Unregistered tags are
// accepted because browsers may send them.
func languageTag(text string) (_ string, ok bool) {
	if len(text) > 35 || text == "" || strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
		return text, false
	}
	parts := strings.Split(text, "-")
	for i, p := range parts {
		if p == "" || len(p) > 8 || i == 0 && (len(p) == 1 || strings.ContainsAny(p, "0123456789")) {
			return text, false
		}
	}
	if tag, err := language.Raw.Parse(text); err == nil {
		return tag.String(), true
	}
	return text, true
}

// Size estimates the size of the routing in memory. The estimate must not be too low, because the
// memory limit for cached links relies on it.
func (r *Routing) Size() (n int) {
	if r == nil {
		return 0
	}
	n = 128 + inMemory(r.Password, r.SplitKey)
	if r.ExpiredURL != nil {
		n += inMemory(r.ExpiredURL.Given, r.ExpiredURL.Location) + 32
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		w := &rule.When
		n += 208 + inMemory(rule.Name, rule.URL.Given, rule.URL.Location) + 16*(len(w.Devices)+len(w.Systems))
		n += 36*(len(w.Countries)+len(w.Languages)) + // each is a separate short string
			inMemory(w.Countries...) + inMemory(w.Languages...)
		if len(w.Query) > 0 {
			n += 384 + 75*max(0, len(w.Query)-8) // map slots
		}
		for name, value := range w.Query {
			n += inMemory(name, value)
		}
	}
	return n
}

// inMemory estimates the size of strings in memory, without their headers. It accounts for the
// runtime's rounding of allocation sizes.
func inMemory(texts ...string) (n int) {
	for _, t := range texts {
		n += len(t) + min(len(t), 8+len(t)/8)
	}
	return n
}

// size returns the approximate size of the stored rule.
func (r *Rule) size() int {
	n := len(r.Name) + len(r.URL.Given) + len(r.URL.Location) + 2*len(r.When.Countries) + 8*(len(r.When.Devices)+len(r.When.Systems))
	for _, l := range r.When.Languages {
		n += len(l)
	}
	for name, value := range r.When.Query {
		n += len(name) + len(value)
	}
	return n + 64
}
