package store

import (
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Teller is how the store tells of changes: each transaction that changes a link
// or a domain writes its event too.
type Teller struct {
	Outbox *outbox.Outbox
	// Link and Domain are the records as the API shows them.
	Link   func(*link.Link) any
	Domain func(*customdomain.Domain) any
}

// Tell sets how changes are told of. A store without it changes nothing: its
// transactions fail.
func (s *Store) Tell(t Teller) *Store {
	s.teller = t
	return s
}

func (t *tx) tellLink(what events.Type, l *link.Link) {
	if show := t.s.teller.Link; show != nil {
		t.told = append(t.told, events.Event{AccountID: l.AccountID, Type: what, Object: l.ID, Data: show(l)})
		return
	}
	t.told = append(t.told, events.Event{}) // refused by the outbox
}

func (t *tx) tellDomain(what events.Type, d *customdomain.Domain) {
	if show := t.s.teller.Domain; show != nil {
		t.told = append(t.told, events.Event{AccountID: d.AccountID, Type: what, Object: d.ID, Data: show(d)})
		return
	}
	t.told = append(t.told, events.Event{})
}

// tellMove tells of a domain that was proven or has lapsed. A domain lapses by
// the passing of time, so what it was and is are judged at its checks: the check
// that finds it lapsed is the one that tells, and no other.
func (t *tx) tellMove(before, after *customdomain.Domain) {
	was, is := before.Verified(before.CheckedAt), after.Verified(after.CheckedAt)
	switch {
	case !was && is:
		t.tellDomain(events.DomainVerified, after)
	case was && !is:
		t.tellDomain(events.DomainLapsed, after)
	}
}
