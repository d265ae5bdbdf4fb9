package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/clients/go/linktable"
)

// rulesText formats rules for [linktable.ParseRules], or returns "" if there are none.
func rulesText(rules []client.LinkRule) string {
	if len(rules) == 0 {
		return ""
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(rules) // strings, numbers and times can always be encoded
	return strings.TrimSpace(b.String())
}

// routingFlags adds the flags of `links create` that set how a link handles visits. After the flags
// are parsed, call complete to set the remaining fields of in.
func (a *app) routingFlags(fs *flag.FlagSet, in *client.LinkCreate) (complete func() error) {
	fs.Func("redirect-type", "`301`, 302 or 308; 302 by default", func(s string) error { return number(s, &in.RedirectType) })
	fs.BoolVar(&in.ForwardQuery, "forward-query", false, "add the visitor's query to the destination")
	fs.BoolVar(&in.ForwardPath, "forward-path", false, "append the path after the slug to the destination's path")
	fs.Func("starts", "`when` the link starts: 7d, 2027-01-31 or any date", func(s string) error {
		in.StartsAt = moment(s, a.env.Now())
		return nil
	})
	fs.StringVar(&in.ExpiredURL, "expired-url", "", "`address` for visits after the link has ended")
	fs.StringVar(&in.Password, "password", "", "visitors must enter this `password`; - reads it from standard input")
	fs.Func("max-clicks", "end the link after `n` clicks", func(s string) error { return number(s, &in.MaxClicks) })
	fs.Func("rules", "rules as `JSON`", func(s string) (err error) { in.Rules, err = linktable.ParseRules(s); return err })
	return func() (err error) { in.Password, err = a.passwordFrom(in.Password); return err }
}

// routingFields adds the flags of `links update` that set how a link handles visits. After the
// flags are parsed, call complete to set the remaining fields of in.
func (a *app) routingFields(fs *flag.FlagSet, in *client.LinkUpdate) (complete func() error) {
	numberField(fs, "redirect-type", "`301`, 302 or 308", &in.RedirectType)
	boolField(fs, "forward-query", "`true` adds the visitor's query to the destination, false does not", &in.ForwardQuery)
	boolField(fs, "forward-path", "`true` appends the path after the slug to the destination's path, false does not", &in.ForwardPath)
	a.momentField(fs, "starts", "`when` the link starts: 7d, 2027-01-31, any date, or never to start immediately", &in.StartsAt)
	textField(fs, "expired-url", "`address` for visits after the link has ended; an empty value removes it", &in.ExpiredURL)
	numberField(fs, "max-clicks", "end the link after `n` clicks; an empty value removes the limit", &in.MaxClicks)
	fs.Func("rules", "new rules as `JSON`; an empty value removes all", func(s string) error {
		if s == "" {
			in.Rules = client.Clear[[]client.LinkRule]()
			return nil
		}
		rules, err := linktable.ParseRules(s)
		in.Rules = client.Set(rules)
		return err
	})
	password, given := "", false
	fs.Func("password", "new `password`; - reads it from standard input, an empty value removes it", func(s string) error {
		password, given = s, true
		return nil
	})
	return func() error {
		text, err := a.passwordFrom(password)
		switch {
		case err != nil || !given:
		case text == "" && password == "":
			in.Password = client.Clear[string]()
		default:
			in.Password = client.Set(text)
		}
		return err
	}
}

func number(s string, to **int64) error {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return errors.New("must be a whole number")
	}
	*to = &n
	return nil
}

// numberField adds a flag that sets a number in an update. An empty value clears it.
func numberField(fs *flag.FlagSet, name, usage string, to *client.Field[int64]) {
	fs.Func(name, usage, func(s string) error {
		*to = client.Clear[int64]()
		if s == "" {
			return nil
		}
		var n *int64
		if err := number(s, &n); err != nil {
			return err
		}
		*to = client.Set(*n)
		return nil
	})
}

// boolField adds a flag that sets a field in an update to true or false.
func boolField(fs *flag.FlagSet, name, usage string, to *client.Field[bool]) {
	fs.Func(name, usage, func(s string) error {
		v, err := strconv.ParseBool(s)
		*to = client.Set(v)
		return err
	})
}

// momentField adds a flag that sets a time in an update. An empty value or "never" clears it.
func (a *app) momentField(fs *flag.FlagSet, name, usage string, to *client.Field[client.Time]) {
	fs.Func(name, usage, func(s string) error {
		*to = client.Set(moment(s, a.env.Now()))
		if s == "never" || s == "" {
			*to = client.Clear[client.Time]()
		}
		return nil
	})
}

// routingFacts returns the routing settings that `links get` prints, for [facts].
func routingFacts(l *client.Link) []string {
	yes := map[bool]string{true: "yes"}
	kind, most := "", ""
	if l.RedirectType != 302 {
		kind = nonzero(int64(l.RedirectType))
	}
	if l.MaxClicks != nil {
		most = strconv.FormatInt(*l.MaxClicks, 10)
	}
	out := []string{"redirect type", kind, "forwards query", yes[l.ForwardQuery], "forwards path", yes[l.ForwardPath],
		"starts", when(l.StartsAt), "after expiry", text(l.ExpiredURL), "password", yes[l.HasPassword], "click limit", most}
	for _, r := range l.Rules {
		conditions, _ := json.Marshal(r.When) // strings, numbers and times can always be encoded
		out = append(out, "rule", fmt.Sprintf("%s: %s → %s", r.Name, conditions, r.URL))
	}
	return out
}

func linksExplain(a *app, fs *flag.FlagSet) action {
	var v client.ExplainLinkQuery
	fs.StringVar(&v.Country, "country", "", "two-letter country `code`, such as DE")
	fs.StringVar(&v.Device, "device", "", "`desktop`, phone or tablet")
	fs.StringVar(&v.System, "system", "", "`windows`, macos, linux, ios, android, chromeos or other")
	fs.StringVar(&v.Language, "language", "", "what the browser sends as Accept-Language, such as `de-AT`")
	fs.StringVar(&v.Query, "query", "", "the visit's whole `query`, such as a=1&b=2")
	fs.StringVar(&v.Path, "path", "", "the `path` after the slug, such as /a/b")
	fs.Func("at", "`time` of the visit: 7d, 2027-01-31 or any date; default is now", func(s string) error {
		v.At = moment(s, a.env.Now()).String()
		return nil
	})
	fs.Func("percent", "the visitor's `percentile` for rules with a percentage, 0 to 99", func(s string) error {
		n, err := strconv.Atoi(s)
		v.Percent = &n
		return err
	})
	return a.asksLink(func(ctx context.Context, c *client.Client, id string) error {
		e, err := c.ExplainLink(ctx, id, v)
		return a.answer(e, err, func(w io.Writer) {
			facts(w, "status", strconv.Itoa(e.Status), "redirects to", text(e.Location), "rule", text(e.Rule), "why", e.Why)
		})
	})
}

func linksAvailable(a *app, fs *flag.FlagSet) action {
	domain := fs.String("domain", "", "`id` of a domain; default is the default host")
	return a.asks("SLUG", func(ctx context.Context, c *client.Client, slug string) error {
		got, err := c.CheckSlug(ctx, client.CheckSlugQuery{Slug: slug, DomainID: *domain})
		return a.answer(got, err, func(w io.Writer) {
			if got.Available {
				fmt.Fprintln(w, "available")
				return
			}
			fmt.Fprintln(w, clean(text(got.Reason)))
		})
	})
}

// exportedLink is a line in an export. A list omits the rules, so the export reads each link that
// has rules.
type exportedLink struct {
	client.LinkSummary
	Rules []client.LinkRule `json:"rules,omitempty"`
}

// withRules returns a link as it appears in an export, including its rules. found is false if the
// link no longer exists.
func withRules(ctx context.Context, c *client.Client, l client.LinkSummary) (out exportedLink, found bool, err error) {
	out.LinkSummary = l
	if !l.HasRules {
		return out, true, nil
	}
	whole, err := c.GetLink(ctx, l.ID)
	if client.HasCode(err, "LINK_NOT_FOUND", "NOT_FOUND") {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	out.Rules = whole.Rules
	return out, true, nil
}

// atTime converts a date in a rule's condition to a number, so it can be compared with the
// service's value.
func atTime(m *client.Time) (*client.Time, error) {
	if m == nil {
		return nil, nil
	}
	var text string
	b, _ := m.MarshalJSON() // a string or a number
	if json.Unmarshal(b, &text) != nil {
		return m, nil
	}
	t, ok := endOf(text, time.Time{})
	if _, relative := span(text); !ok || relative {
		return nil, fmt.Errorf("from and until must be dates such as 2027-01-31T12:00:00Z, not %q", text)
	}
	at := client.At(t)
	return &at, nil
}
