package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/jsdate"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// came reports whether the request contains the field. It supports only fields that can conflict
// with others.
func came(in *wire.LinkRouting, field string) bool {
	switch field {
	case "redirectType":
		return in.RedirectType.Set
	case "maxClicks":
		return in.MaxClicks.Set
	case "password":
		return in.Password.Set
	}
	return false
}

// hashed is the hash of the password in a request, or "" if the request removes the password.
type hashed struct {
	set  bool
	hash string
}

// hash hashes the password in a request. It takes 19 MiB of memory and about 30 ms of CPU time, so
// only call it for a request without errors.
func (h public) hash(ctx context.Context, in httpapi.Optional[string]) (p hashed, err error) {
	if p.set = in.Set; in.Null {
		return p, nil
	}
	p.hash, err = h.opt.Passwords.Hash(ctx, account(ctx), in.Value)
	if errors.Is(err, password.ErrBusy) {
		err = &apierr.Error{Code: apierr.RateLimited, RetryAfter: time.Second, Err: err,
			Message: "Your account is setting or checking too many passwords at once. Try again after the time in Retry-After."}
	}
	return p, err
}

// change sets or removes the link's password.
func (p hashed) change(l *link.Link) {
	if p.set {
		r := l.Route()
		r.Password = p.hash
		l.SetRoute(r)
	}
}

// changes parses the fields and returns the changes that they make to a link. own returns the hosts
// that URLs must not point to. changes calls own only if the request contains a URL.
func (h public) changes(f *httpapi.Fields, in *wire.LinkRouting, own func() (link.Hosts, error)) (link.Patch, error) {
	var p link.Patch
	set := func(change func(*link.Routing)) {
		p = append(p, func(l *link.Link) {
			r := l.Route()
			change(&r)
			l.SetRoute(r)
		})
	}
	if b := in.RedirectType; b.Set {
		to := 0
		if !b.Null {
			to = validate(f, "redirectType", func() (int, *apierr.Detail) { return link.ParseRedirectType(b.Value) })
		}
		set(func(r *link.Routing) { r.RedirectType = to })
	}
	if b := in.ForwardQuery; b.Set {
		set(func(r *link.Routing) { r.ForwardQuery = b.Value })
	}
	if b := in.ForwardPath; b.Set {
		set(func(r *link.Routing) { r.ForwardPath = b.Value })
	}
	if b := in.StartsAt; b.Set {
		to := expiryOrNever(f, "startsAt", b)
		set(func(r *link.Routing) { r.StartsAt = to })
	}
	if b := in.MaxClicks; b.Set {
		set(func(r *link.Routing) { r.MaxClicks = int64(b.Value) })
	}
	addresses := in.ExpiredURL.Set && !in.ExpiredURL.Null || len(in.Rules.Value) > 0
	var hosts link.Hosts
	if addresses {
		var err error
		if hosts, err = own(); err != nil {
			return nil, err
		}
	}
	if b := in.ExpiredURL; b.Null {
		set(func(r *link.Routing) { r.ExpiredURL = nil })
	} else if b.Set {
		to := validate(f, "expiredUrl", func() (link.URL, *apierr.Detail) { return h.links.Destination(b.Value, hosts) })
		set(func(r *link.Routing) { r.ExpiredURL = &to })
	}
	if b := in.Rules; b.Set {
		rules := h.rules(f, b.Value, hosts)
		set(func(r *link.Routing) { r.Rules = rules })
	}
	return p, nil
}

// rules parses a link's rules. Types, names and lengths have already been checked against the
// contract.
func (h public) rules(f *httpapi.Fields, in []wire.LinkRule, own link.Hosts) []link.Rule {
	if f.HasError("rules") || len(in) == 0 {
		return nil
	}
	rules := make([]link.Rule, len(in))
	for i := range in {
		field := fmt.Sprintf("rules.%d", i)
		w, when := &in[i].When, &rules[i].When
		rules[i].Name = in[i].Name
		rules[i].URL = validate(f, field+".url", func() (link.URL, *apierr.Detail) { return h.links.Destination(in[i].URL, own) })
		when.Countries, when.Languages, when.Query, when.Percent = w.Country, w.Language, w.Query, w.Percent
		for _, name := range w.Device {
			device, _ := link.ParseDevice(name)
			when.Devices = append(when.Devices, device)
		}
		for _, name := range w.System {
			when.Systems = append(when.Systems, link.Systems[name])
		}
		when.From, when.Until = instant(f, field+".when.from", w.From), instant(f, field+".when.until", w.Until)
	}
	tidy, bad := link.CheckRules(rules, h.opt.Countries)
	for _, d := range bad {
		if !f.HasErrorIn(d.Field) { // invalid conditions were omitted, so their rule may look empty
			f.Add(d)
		}
	}
	return tidy
}

// checkTogether adds an error for each of the link's fields that cannot be combined with another
// field, if the request contains it.
func checkTogether(f *httpapi.Fields, l *link.Link, in *wire.LinkRouting) {
	for _, c := range l.Conflicts() {
		for i, field := range c.Fields {
			if c.Always && i == 0 || !c.Always && came(in, field) {
				f.Add(apierr.Detail{Field: field, Code: c.Code, Message: c.Text})
			}
		}
	}
}

// addRouting adds the routing fields that lists show.
func addRouting(out *wire.LinkSummary, r *link.Routing) {
	out.ForwardQuery, out.ForwardPath = r.ForwardQuery, r.ForwardPath
	if r.RedirectType != 0 {
		out.RedirectType = r.RedirectType
	}
	if r.StartsAt.Set {
		out.StartsAt = &r.StartsAt.MS
	}
	if r.ExpiredURL != nil {
		out.ExpiredURL = &r.ExpiredURL.Given
	}
	out.HasPassword, out.HasRules = r.Password != "", r.Unread || len(r.Rules) > 0
	if r.MaxClicks > 0 {
		out.MaxClicks = &r.MaxClicks
	}
}

func ruleOf(rule link.Rule) wire.LinkRule {
	w := &rule.When
	when := wire.LinkRuleWhen{
		Country: w.Countries, Language: w.Languages, Query: w.Query, Percent: w.Percent, From: shownMoment(w.From), Until: shownMoment(w.Until),
	}
	for _, device := range w.Devices {
		when.Device = append(when.Device, device.RuleName())
	}
	for _, system := range w.Systems {
		when.System = append(when.System, system.String())
	}
	return wire.LinkRule{Name: rule.Name, URL: rule.URL.Given, When: when}
}

func shownMoment(m link.Moment) *jsdate.Moment {
	if !m.Set {
		return nil
	}
	at := jsdate.At(m.MS)
	return &at
}
