package store

import (
	"context"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Lookups reads the records that are cached for redirects.
type Lookups struct{ DB *firestoredb.DB }

// Target reads the target of the slug with this [link.SlugKey]. There is no target if the slug has
// never been used or its link was deleted.
func (r Lookups) Target(ctx context.Context, key string) (link.Target, bool, error) {
	t, _, err := firestoredb.Lookup(ctx, r.DB, "resolve slug", r.slugRef(key), readTarget)
	if err != nil || t == nil {
		return link.Target{}, false, err
	}
	return *t, true, nil
}

var readTarget = firestoredb.Reader(targetOf)

// targetOf returns nil for the slug of a deleted link.
func targetOf(_ firestoredb.Snap, d *slugDoc) *link.Target {
	if !d.ReleasedUntil.IsZero() {
		return nil
	}
	t := &link.Target{
		LinkID: d.LinkID, AccountID: d.AccountID, TakenDown: d.Takedown != nil, Slug: link.Slug(d.Slug), Location: d.Location,
		Expiry: momentOf(d.ExpiresAt), UsedUp: d.UsedUp,
	}
	if d.Routing != nil {
		t.Routing = routingOf(d.Routing)
	}
	if d.OG != nil {
		t.OpenGraph = &link.MetaTags{Title: text(d.OG.Title), Description: text(d.OG.Description), Image: text(d.OG.ImageLocation)}
	}
	return t
}

// Host reads the data about a host name that redirects need. The name must be in lower case.
func (r Lookups) Host(ctx context.Context, host string) (s link.Site, found bool, err error) {
	d, found, err := firestoredb.Lookup(ctx, r.DB, "resolve host", r.hostRef(host), firestoredb.As[hostDoc])
	if s = (link.Site{DomainID: d.DomainID, AccountID: d.AccountID}); d.Pages != nil {
		s.Pages = link.PagesOf(pagesOf(d.Pages))
	}
	return s, found, err
}

// Owner returns the domain that owns a host name. The name must be in lower case.
func (r Lookups) Owner(ctx context.Context, host string) (domainID string, found bool, err error) {
	s, found, err := r.Host(ctx, host)
	return s.DomainID, found, err
}

func (r Lookups) hostRef(host string) firestoredb.Ref { return r.DB.Collection("hostnames").Doc(host) }

// Suspended reports whether an account is suspended or being erased. The links in such an account
// do not redirect.
func (r Lookups) Suspended(ctx context.Context, accountID string) (bool, error) {
	standing, err := Standings(r.DB).Standing(ctx, accountID)
	return !standing.State.Serves(), err
}
