package link

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

// Visit contains the properties of a visit that a decision depends on. An empty field means
// unknown. A condition on an unknown value is not met.
type Visit struct {
	At       time.Time
	Host     string // host of the short URL; "" for the default short host
	Path     string // path after the slug, as the visitor sent it; see [WithPath]
	Query    string // query as the visitor sent it, without the question mark
	Country  string
	Device   Device
	System   System
	Language string // Accept-Language header
	// Place returns the visitor's bucket, a number from 0 to 99 that rules with percentages use to
	// divide visitors, or a negative number if it is unknown. It is called only for a link with
	// percentages. The bucket depends only on the link's SplitKey and on the visitor, so a visitor
	// is always redirected to the same destination.
	Place func(splitKey string) int
}

// Pages contains the URLs that a host redirects visits to if no link serves them. An empty URL
// means that the host has no such page.
type Pages struct{ Home, NotFound, Expired string }

// PagesOf returns a domain's pages, or nil.
func PagesOf(p customdomain.Pages) *Pages {
	if p == (customdomain.Pages{}) {
		return nil
	}
	return &Pages{p.Home.Location, p.NotFound.Location, p.Expired.Location}
}

// Site contains what a redirect needs to know about a custom host.
type Site struct {
	DomainID, AccountID string
	Pages               *Pages // nil if it has none
}

// Surroundings contains the inputs to a decision other than the link and the visit.
type Surroundings struct {
	Suspended bool   // the account that owns the link or the host's pages is out of service
	Exhausted bool   // all clicks on a link with MaxClicks are used up
	Unlocked  bool   // the visitor has entered the link's password
	Own       Hosts  // hosts of the default short host
	Pages     *Pages // pages of the visited host
	Blocked   *Blocklist
}

// Outcome is the kind of response to a visit.
type Outcome byte

// The outcomes of a visit.
const (
	Missing      Outcome = iota // the link does not exist
	OutOfService                // the account is suspended
	TakenDown                   // the link was taken down, or its destination is blocked
	NotYet                      // the link has not started yet
	Over                        // the link has expired
	Exhausted                   // all clicks on the link are used up
	Locked                      // the link requires its password
	Led                         // the visitor is redirected
)

// Decision is the response to a visit.
type Decision struct {
	Outcome Outcome
	// Location is the URL that the visitor is redirected to. It is ASCII and safe in a header. If
	// it is empty, the visitor gets one of our own pages. For the outcomes Missing and Over,
	// Location may be one of the host's or the link's pages.
	Location string
	Status   int // the HTTP status
	// MaxAge is how many seconds a browser may reuse the response. It is negative for a response
	// that browsers must not cache.
	MaxAge int
	Rule   *Rule  // the matching rule; nil for the link's own destination
	Reason Reason // details for [Decision.Why]
}

// Reason contains details that explain a decision.
type Reason struct {
	Path, Split, Blocked, Locked bool
	From                         Moment
}

// maxAge is the maximum number of seconds a browser may cache a response. It ensures that
// every visitor sees an edit within a minute.
const maxAge = 60

// Decide determines the response to a visit. t is nil if the link does not exist. All decisions
// about a link are made here, in a fixed order, and depend only on the arguments. The first row
// that applies determines the response:
//
//	condition                                  response
//	-----------------------------------------  ------------------------------------------
//	no link, or no link for this path          404, or the host's not-found page
//	the account is suspended                   410
//	the link is taken down                     410
//	before startsAt                            404
//	expired, or maxClicks used up              the link's expiredUrl, the host's, or 410
//	a password is required                     the password page
//	the visit meets a rule's conditions        the rule's destination, or 410 if it is blocked
//	none of the above                          the link's destination, or 410 if it is blocked
func Decide(t *Target, v *Visit, s *Surroundings) Decision {
	switch {
	case t == nil:
		return s.missing(v, Reason{})
	case v.Path != "" && !t.takes(v.Path):
		return s.missing(v, Reason{Path: true})
	case s.Suspended:
		return Decision{Outcome: OutOfService, Status: 410, MaxAge: -1}
	case t.TakenDown:
		return Decision{Outcome: TakenDown, Status: 410, MaxAge: -1}
	}
	r := t.Routing
	if r == nil { // fast path for nearly all links: same order, without the other checks
		switch {
		case t.Expiry.Passed(v.At):
			return s.over(t, v)
		case s.Blocked != nil && s.Blocked.Has(t.Location):
			return Decision{Outcome: TakenDown, Status: 410, MaxAge: -1, Reason: Reason{Blocked: true}}
		}
		return Decision{Outcome: Led, Location: t.Location, Status: DefaultRedirect, MaxAge: -1}
	}
	switch {
	case r.StartsAt.Set && !r.StartsAt.Passed(v.At):
		return Decision{Outcome: NotYet, Status: 404, MaxAge: -1, Reason: Reason{From: r.StartsAt}}
	case t.Expiry.Passed(v.At):
		return s.over(t, v)
	case r.MaxClicks > 0 && s.Exhausted:
		d := s.over(t, v)
		d.Outcome = Exhausted
		return d
	case r.Password != "" && !s.Unlocked:
		return Decision{Outcome: Locked, Status: 200, MaxAge: -1}
	}
	rule, split := r.choose(v)
	to := t.Location
	if rule != nil {
		to = rule.URL.Location
	}
	if s.refuses(to, v) {
		return Decision{Outcome: TakenDown, Status: 410, MaxAge: -1, Rule: rule, Reason: Reason{Blocked: true}}
	}
	if r.ForwardPath {
		to = WithPath(to, v.Path)
	}
	if r.ForwardQuery {
		to = WithQuery(to, v.Query)
	}
	d := Decision{Outcome: Led, Location: to, Status: DefaultRedirect, MaxAge: -1, Rule: rule, Reason: Reason{Split: split}}
	if r.RedirectType != 0 {
		d.Status, d.MaxAge = r.RedirectType, r.maxAge(t.Expiry, v.At)
	}
	if r.Password != "" {
		d.Status, d.Reason.Locked = 303, true
	}
	return d
}

// takes reports whether the link accepts the path after its slug.
func (t *Target) takes(path string) bool {
	return t.Routing != nil && t.Routing.ForwardPath && forwardable(path)
}

// refuses reports whether a URL is blocked or points back to the visited host. Visitors must not be
// redirected to such a URL.
func (s *Surroundings) refuses(address string, v *Visit) bool {
	return s.Blocked != nil && s.Blocked.Has(address) || s.loops(address, v)
}

func (s *Surroundings) loops(address string, v *Visit) bool {
	to, _ := authority(address)
	host := ParseHost(to)
	if v.Host == "" {
		return slices.Contains(s.Own, host)
	}
	return host.Name == v.Host && slices.Contains(s.Own.At(v.Host), host)
}

// DecideHome determines the response to a visit to "/".
func DecideHome(v *Visit, s *Surroundings) Decision {
	d := Decision{Outcome: Missing, Status: 404, MaxAge: -1}
	switch {
	case s.Pages == nil || s.Pages.Home == "":
	case s.Suspended:
		d.Outcome, d.Status = OutOfService, 410
	default:
		s.lead(&d, v, s.Pages.Home)
	}
	return d
}

func (s *Surroundings) missing(v *Visit, why Reason) Decision {
	d := Decision{Outcome: Missing, Status: 404, MaxAge: -1, Reason: why}
	if s.Pages != nil && !s.Suspended {
		s.lead(&d, v, s.Pages.NotFound)
	}
	return d
}

// over determines the response to a visit to an expired or exhausted link.
func (s *Surroundings) over(t *Target, v *Visit) Decision {
	d := Decision{Outcome: Over, Status: 410, MaxAge: -1}
	switch {
	case t.Routing != nil && t.Routing.ExpiredURL != nil:
		s.lead(&d, v, t.Routing.ExpiredURL.Location)
	case s.Pages != nil:
		s.lead(&d, v, s.Pages.Expired)
	}
	return d
}

// lead redirects to the URL, unless it is empty or must not be used.
func (s *Surroundings) lead(d *Decision, v *Visit, address string) {
	if address != "" && !s.refuses(address, v) {
		d.Location, d.Status = address, DefaultRedirect
	}
}

// choose returns the first matching rule, or nil. split reports whether a rule was skipped because
// the visitor's bucket is unknown.
//
// Rules with percentages divide the buckets from 0 to 99 among themselves, in order. Only rules
// whose other conditions are met get a share. So two rules with 50 percent each cover all visitors.
func (r *Routing) choose(v *Visit) (_ *Rule, split bool) {
	begin, place := 0, -1
	if r.splits() && v.Place != nil {
		place = v.Place(r.SplitKey)
	}
	known := facts{visit: v}
	for i := range r.Rules {
		rule := &r.Rules[i]
		if !rule.When.holds(&known) {
			continue
		}
		if rule.When.Percent == 0 {
			return rule, split
		}
		end := min(begin+rule.When.Percent, 100)
		if place < 0 {
			split = true
		} else if begin <= place && place < end {
			return rule, split
		}
		begin = end
	}
	return nil, split
}

// facts contains a visit and the values parsed from it. Each value is parsed at most once.
type facts struct {
	visit     *Visit
	languages []string
	query     []parameter
	read      bool
}

type parameter struct{ name, value string }

func (f *facts) parse() {
	if f.read {
		return
	}
	f.read = true
	f.languages = favourites(f.visit.Language)
	for text := range strings.SplitSeq(f.visit.Query, "&") {
		if text != "" {
			name, value, _ := strings.Cut(text, "=")
			f.query = append(f.query, parameter{unescaped(name), unescaped(value)})
		}
	}
}

// holds reports whether all conditions except the percentage are met.
func (w *When) holds(f *facts) bool {
	v := f.visit
	if len(w.Countries) > 0 && !slices.Contains(w.Countries, v.Country) ||
		len(w.Devices) > 0 && (v.Device == OtherDevice || !slices.Contains(w.Devices, v.Device)) ||
		len(w.Systems) > 0 && (v.System == UnknownSystem || !slices.Contains(w.Systems, v.System)) ||
		w.From.Set && !w.From.Passed(v.At) || w.Until.Passed(v.At) {
		return false
	}
	if len(w.Languages)+len(w.Query) > 0 {
		f.parse()
	}
	if len(w.Languages) > 0 && !slices.ContainsFunc(w.Languages, func(want string) bool {
		return slices.ContainsFunc(f.languages, func(have string) bool { return covers(want, have) })
	}) {
		return false
	}
	for name, value := range w.Query {
		if !slices.ContainsFunc(f.query, func(p parameter) bool { return p.name == name && (value == "*" || p.value == value) }) {
			return false
		}
	}
	return true
}

// maxLanguages is the maximum length of an Accept-Language header. Longer headers are ignored.
const maxLanguages = 200

// favourites returns the languages that have the highest weight in an Accept-Language header (RFC
// 9110 §12.5.4).
func favourites(header string) (best []string) {
	if len(header) > maxLanguages {
		return nil
	}
	most := 0.0
	for part := range strings.SplitSeq(header, ",") {
		tag, params, _ := strings.Cut(strings.TrimSpace(part), ";")
		weight := 1.0
		if name, text, ok := strings.Cut(strings.TrimSpace(params), "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil || q < 0 || q > 1 {
				continue
			}
			weight = q
		}
		tag = strings.TrimSpace(tag)
		switch {
		case tag == "" || tag == "*" || weight == 0 || weight < most:
		case weight > most:
			best, most = []string{tag}, weight
		default:
			best = append(best, tag)
		}
	}
	return best
}

// covers reports whether the language tag have equals want or is a variant of it: pt covers pt-BR.
func covers(want, have string) bool {
	return len(have) >= len(want) && strings.EqualFold(have[:len(want)], want) && (len(have) == len(want) || have[len(want)] == '-')
}

// maxAge returns how many seconds the decision stays valid, at most 60.
func (r *Routing) maxAge(end Moment, now time.Time) int {
	age := maxAge
	bound := func(m Moment) {
		if m.Set && !m.Passed(now) {
			age = min(age, int(min((m.MS-now.UnixMilli())/1000, maxAge)))
		}
	}
	bound(end)
	for i := range r.Rules {
		bound(r.Rules[i].When.From)
		bound(r.Rules[i].When.Until)
	}
	return age
}

// Why returns a sentence that explains why the visit gets this response.
func (d *Decision) Why() string {
	switch d.Outcome {
	case OutOfService:
		return "The account is suspended."
	case TakenDown:
		if !d.Reason.Blocked {
			return "The operator took the link down."
		}
		if d.Rule != nil {
			return fmt.Sprintf("The destination of rule %q is blocked or points back to this host.", d.Rule.Name)
		}
		return "The destination is blocked or points back to this host."
	case NotYet:
		return "The link does not redirect before its startsAt."
	case Locked:
		return "The link asks for a password."
	case Exhausted:
		return "The link has used up all its clicks."
	case Over:
		if d.Location != "" {
			return "The link has expired. Visits are redirected to the page for expired links."
		}
		return "The link has expired."
	case Missing:
		if d.Reason.Path {
			return "The link does not accept this path."
		}
		return "The link does not exist."
	}
	return d.whyLed()
}

func (d *Decision) whyLed() string {
	passed := ""
	if d.Reason.Locked {
		passed = " The link asks for a password first."
	}
	if d.Reason.Split {
		passed += " A rule that splits visitors was skipped because no percent was given."
	}
	if d.Rule != nil {
		return fmt.Sprintf("All conditions of the rule %q hold.%s", d.Rule.Name, passed)
	}
	return "No rule matches, so the visit is redirected to the link's own destination." + passed
}
