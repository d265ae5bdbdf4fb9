package store

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

// routingDoc contains [link.Routing] in the documents for a link and its slug. Plain links have
// no routing.
type routingDoc struct {
	RedirectType int       `firestore:"type,omitempty"`
	ForwardQuery bool      `firestore:"query,omitempty"`
	ForwardPath  bool      `firestore:"path,omitempty"`
	StartsAt     *int64    `firestore:"startsAt,omitempty"`
	Expired      *urlDoc   `firestore:"expired,omitempty"`
	Rules        []ruleDoc `firestore:"rules,omitempty"`
	Ruled        bool      `firestore:"ruled,omitempty"` // whether there are rules, for lists, which do not read the rules themselves
	Password     string    `firestore:"password,omitempty"`
	MaxClicks    int64     `firestore:"maxClicks,omitempty"`
	// SplitKey is stored only in the slug's document, and only if the link has percentages.
	SplitKey string `firestore:"key,omitempty"`
}

type urlDoc struct {
	Given    string `firestore:"given"`
	Location string `firestore:"location"`
}

type ruleDoc struct {
	Name      string            `firestore:"name"`
	URL       urlDoc            `firestore:"url"`
	Countries []string          `firestore:"countries,omitempty"`
	Devices   []string          `firestore:"devices,omitempty"`
	Systems   []string          `firestore:"systems,omitempty"`
	Languages []string          `firestore:"languages,omitempty"`
	Query     map[string]string `firestore:"query,omitempty"`
	From      *int64            `firestore:"from,omitempty"`
	Until     *int64            `firestore:"until,omitempty"`
	Percent   int               `firestore:"percent,omitempty"`
}

func routingDocOf(r *link.Routing) *routingDoc {
	d := &routingDoc{
		RedirectType: r.RedirectType, ForwardQuery: r.ForwardQuery, ForwardPath: r.ForwardPath, StartsAt: msOf(r.StartsAt),
		Password: r.Password, MaxClicks: r.MaxClicks, Ruled: len(r.Rules) > 0,
	}
	if r.ExpiredURL != nil {
		d.Expired = &urlDoc{r.ExpiredURL.Given, r.ExpiredURL.Location}
	}
	for i := range r.Rules {
		rule := &r.Rules[i]
		w := &rule.When
		doc := ruleDoc{
			Name: rule.Name, URL: urlDoc(rule.URL), Countries: w.Countries, Languages: w.Languages, Query: w.Query,
			From: msOf(w.From), Until: msOf(w.Until), Percent: w.Percent,
		}
		for _, device := range w.Devices {
			doc.Devices = append(doc.Devices, device.RuleName())
		}
		for _, system := range w.Systems {
			doc.Systems = append(doc.Systems, system.String())
		}
		d.Rules = append(d.Rules, doc)
	}
	return d
}

func routingOf(d *routingDoc) *link.Routing {
	r := &link.Routing{
		RedirectType: d.RedirectType, ForwardQuery: d.ForwardQuery, ForwardPath: d.ForwardPath, StartsAt: momentOf(d.StartsAt),
		Password: d.Password, MaxClicks: d.MaxClicks,
		SplitKey: d.SplitKey, Unread: d.Ruled && len(d.Rules) == 0,
	}
	if d.Expired != nil {
		r.ExpiredURL = &link.URL{Given: d.Expired.Given, Location: d.Expired.Location}
	}
	r.Rules = slices.Grow(r.Rules, len(d.Rules)) // cached for redirects
	for i := range d.Rules {
		doc := &d.Rules[i]
		rule := link.Rule{Name: doc.Name, URL: link.URL(doc.URL), When: link.When{
			Countries: doc.Countries, Languages: doc.Languages, Query: doc.Query,
			From: momentOf(doc.From), Until: momentOf(doc.Until), Percent: doc.Percent,
		}}
		for _, name := range doc.Devices {
			device, _ := link.ParseDevice(name)
			rule.When.Devices = append(rule.When.Devices, device)
		}
		for _, name := range doc.Systems {
			rule.When.Systems = append(rule.When.Systems, link.Systems[name])
		}
		r.Rules = append(r.Rules, rule)
	}
	return r
}

// forSlug returns the routing for the slug's document. It derives SplitKey from the link's secret
// nonce, so visitors cannot compute their own buckets.
func (d *routingDoc) forSlug(nonce string) *routingDoc {
	for i := range d.Rules {
		if d.Rules[i].Percent > 0 {
			out := *d
			sum := sha256.Sum256([]byte("split/" + nonce))
			out.SplitKey = hex.EncodeToString(sum[:16])
			return &out
		}
	}
	return d
}

func msOf(m link.Moment) *int64 {
	if !m.Set {
		return nil
	}
	return &m.MS
}

func momentOf(ms *int64) link.Moment {
	if ms == nil {
		return link.Moment{}
	}
	return link.At(*ms)
}
