package link

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

// Result is the outcome of one draft.
type Result struct {
	Link *Link
	Err  error // SLUG_TAKEN, DOMAIN_NOT_VERIFIED, DOMAIN_NOT_FOUND or QUOTA_EXCEEDED; [ErrRefused] if the draft cannot be stored
}

// errAgain ends an attempt to create links if a list position or a generated slug was taken.
var errAgain = errors.New("try again with another position or slug")

// Create calls d.Ready and then creates the link; see [Service.CreateAll].
func (s *Service) Create(ctx context.Context, p *identity.Principal, o identity.Origin, d Draft) error {
	if d.needsNothing() {
		l := newLink(p.AccountID, o, d, 0)
		if err := d.Ready(l); err != nil {
			return err
		}
		if err := s.opt.Store.Add(ctx, p.Quotas.Links, l); !errors.Is(err, ErrInTheWay) {
			return err
		}
	}
	results, err := s.CreateAll(ctx, p, o, []Draft{d})
	if err != nil {
		return err
	}
	return results[0].Err
}

// needsNothing reports whether the draft can be written without reading first. A slug is almost
// always free, and reading first would double the database calls for an ordinary create. A draft
// with a domain, an external ID or tags needs a read because the domain must be verified, the
// external ID may be taken, and tags may be new. A repeated request gets ErrInTheWay because the
// link from its first attempt already exists.
func (d *Draft) needsNothing() bool {
	return d.DomainID == "" && d.ExternalID == "" && len(d.Tags) == 0
}

// CreateAll creates a link for each draft. The creation times follow the order of the drafts. After
// an error, the caller may retry with the same origin. Without an error, each draft has its own
// result. Ordinary drafts are written in one commit. Drafts that are too large for that, such as a
// hundred long URLs, are written in several commits, in order. In that case, some links may already
// exist when an error occurs. The next attempt recognises them by their nonce.
//
// A slug is free if it has no record, or if [SlugRecord.FreeFor] says so. The slug record is
// created only if it does not exist yet. This makes slugs unique: if several requests create the
// same slug, only one commit succeeds.
func (s *Service) CreateAll(ctx context.Context, p *identity.Principal, o identity.Origin, drafts []Draft) ([]Result, error) {
	b := newBatch(s, p, o, drafts)
	err := inPieces(b.items, func(items []*item) (int, error) {
		b.part = items[:fitting(linksOf(items))]
		return len(b.part), b.create(ctx)
	}, func(it *item, err error) { it.err, it.done = err, true })
	if err != nil {
		return nil, err
	}
	return b.results(), nil
}

// create creates the links for one part in one commit.
func (b *batch) create(ctx context.Context) error {
	// Do not try the fast path for several drafts with chosen slugs. One of the slugs may well be
	// taken, and the call would be wasted.
	if b.quick {
		if err := b.s.opt.Store.Add(ctx, b.limit, linksOf(b.part)...); !errors.Is(err, ErrInTheWay) {
			return err
		}
	}
	// Each round settles items or moves them to other positions and slugs. Another round is needed
	// only after a collision of random values, so many rounds in a row indicate a different
	// problem.
	for range 8 {
		err := b.s.opt.Store.Atomically(ctx, "create links", b.settle)
		if !errors.Is(err, errAgain) && !errors.Is(err, ErrInTheWay) {
			return err
		}
	}
	return fmt.Errorf("create links: no free position or slug after 8 attempts")
}

// batch contains a request's drafts while they are being stored.
type batch struct {
	s       *Service
	account string
	limit   int  // maximum number of links in the account; 0 means no limit
	quick   bool // the drafts can be written without reading first
	items   []*item
	part    []*item // items in one commit
}

func linksOf(items []*item) []*Link {
	out := make([]*Link, len(items))
	for i, it := range items {
		out[i] = it.link
	}
	return out
}

type item struct {
	draft Draft
	try   int // number of generated slugs that were taken
	moves int // number of positions that were taken
	link  *Link
	done  bool // the result is final, and nothing more is written
	err   error
}

func newBatch(s *Service, p *identity.Principal, o identity.Origin, drafts []Draft) *batch {
	b := &batch{s: s, account: p.AccountID, limit: p.Quotas.Links, quick: len(drafts) > 1}
	for i, d := range drafts {
		b.quick = b.quick && d.Slug == "" && d.needsNothing()
		b.items = append(b.items, &item{draft: d, link: newLink(p.AccountID, o, d, i)})
	}
	return b
}

// newLink returns the link for a request's i-th draft, with its first position and, if no slug
// was chosen, its first generated slug.
func newLink(accountID string, o identity.Origin, d Draft, i int) *Link {
	// The creation time in microseconds is the link's position in the list. Callers see the time in
	// milliseconds. The drafts in a request are one microsecond apart.
	at := o.At.UTC()
	l := d.Link
	l.AccountID, l.Seq, l.Nonce, l.Rev = accountID, at.UnixMicro()+int64(i), o.Nonce+"/"+strconv.Itoa(i), 1
	l.ID, l.UpdatedAt = ID(accountID, l.Seq), at.Truncate(time.Millisecond)
	if d.CreatedAt.IsZero() { // an imported link keeps its creation time but is listed by its import time
		l.CreatedAt = l.UpdatedAt
	}
	if l.Foreseeable = d.Slug != ""; !l.Foreseeable {
		l.Slug = drawn(l.Nonce, 0)
	}
	return &l
}

// move moves the item to a position that no other item in the batch has. The step depends only on
// the request, so a repeated request tries the same positions. The step is at most a millisecond,
// so the list stays sorted by time.
func (b *batch) move(it *item) {
	it.moves++
	seq := it.link.Seq + stepFrom(it.link.Nonce, it.moves)
	for b.has(seq) {
		seq++
	}
	it.link.Seq, it.link.ID = seq, ID(b.account, seq)
}

// stepFrom returns a pseudorandom number from 1 to 1000. A repeated request gets the same numbers.
func stepFrom(nonce string, move int) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(nonce + "/" + strconv.Itoa(move)))
	return 1 + int64(h.Sum32()%1000)
}

func (b *batch) has(seq int64) bool {
	return slices.ContainsFunc(b.items, func(it *item) bool { return it.link.Seq == seq })
}

// drawn returns the slug generated for an attempt. It is derived from the random nonce, so a
// repeated request generates the same slug. After a few collisions, slugs get longer.
func drawn(nonce string, try int) Slug {
	return Slug(identity.SlugFrom(nonce+"/"+strconv.Itoa(try), GeneratedSlugLength+try/3))
}

func (b *batch) results() []Result {
	out := make([]Result, len(b.items))
	for i, it := range b.items {
		out[i] = Result{Link: it.link, Err: it.err}
		if it.err != nil {
			out[i].Link = nil
		}
	}
	return out
}

// settle reads every record that may conflict, decides the outcome of each item, and writes the
// items that can be created. If a position or a generated slug was taken, it writes nothing and
// returns errAgain, and the caller calls it again.
func (b *batch) settle(tx Tx) error {
	// settle may run several times. Discard the decisions from an earlier run because the records
	// may have changed.
	for _, it := range b.part {
		it.err, it.done = nil, false
	}
	if err := b.onDomains(tx); err != nil {
		return err
	}
	open, links, slugs, err := b.look(tx)
	if err != nil {
		return err
	}
	adds, moved := b.decide(tx, open, links, slugs)
	if moved {
		return errAgain
	}
	if adds, err = b.withFreeExternalIDs(tx, adds); err != nil {
		return err
	}
	// Items that an earlier attempt created are already settled and do not count here. A repeated
	// request therefore succeeds even if its first attempt created the last allowed link.
	room, err := tx.Room(b.account, b.limit, len(adds))
	if err != nil {
		return err
	}
	if len(adds) > room {
		for _, a := range adds[room:] {
			a.it.err, a.it.done = Full(), true
		}
		adds = adds[:room]
	}
	if err := tags(tx, b.account, changesOf(adds)); err != nil {
		return err
	}
	for _, a := range adds {
		if ready := a.it.draft.Ready; ready != nil {
			if err := ready(a.it.link); err != nil {
				return err
			}
		}
		tx.Add(a.it.link, a.over, events.LinkCreated)
	}
	return nil
}

type add struct {
	it   *item
	over bool // set to replace the record of the slug's previous link
}

func changesOf(adds []add) []change {
	out := make([]change, len(adds))
	for i, a := range adds {
		out[i].after = a.it.link
	}
	return out
}

// withFreeExternalIDs rejects each item with an external ID that another link already has.
func (b *batch) withFreeExternalIDs(tx Tx, adds []add) (free []add, err error) {
	taken, err := externalIDs(tx, b.account, changesOf(adds))
	if err != nil {
		return nil, err
	}
	for i, a := range adds {
		if taken[i] {
			a.it.err, a.it.done = ExternalIDTaken(), true
			continue
		}
		free = append(free, a)
	}
	return free, nil
}

// decide determines the outcome of the open items, in order. If two items choose the same slug, the
// first one gets it.
func (b *batch) decide(tx Tx, open []*item, links []*Link, slugs []*SlugRecord) (adds []add, moved bool) {
	claimed := map[string]bool{}
	for i, it := range open {
		if links[i] != nil && links[i].Nonce == it.link.Nonce {
			it.link, it.done = links[i], true // created by an earlier attempt at this request
			claimed[it.link.Key()] = true
			tx.Announce(it.link.Key()) // the earlier attempt may have died before announcing the link
			continue
		}
		switch free := slugs[i].FreeFor(b.account, b.s.opt.Now()) && !claimed[it.link.Key()]; {
		// Another link in the account, perhaps created in the same microsecond, has this position.
		case links[i] != nil:
			b.move(it)
			moved = true
		case free:
			claimed[it.link.Key()] = true
			// Use the records from this round. An earlier round may have read a takedown that has
			// since been lifted.
			it.link.Takedown = nil
			if slugs[i] != nil {
				it.link.Takedown = slugs[i].Takedown
			}
			adds = append(adds, add{it, slugs[i] != nil})
		case it.draft.Slug == "":
			it.try++
			it.link.Slug, moved = drawn(it.link.Nonce, it.try), true
		default:
			it.err, it.done = SlugTaken(it.draft.Slug), true
		}
	}
	return adds, moved
}

// onDomains rejects each item with an unusable domain. It makes the commit depend on the items'
// domains, so none of them can be deleted concurrently.
func (b *batch) onDomains(tx Tx) error {
	domains := map[string]*customdomain.Domain{}
	for _, it := range b.part {
		id := it.draft.DomainID
		if id == "" {
			continue
		}
		d, known := domains[id]
		if !known {
			var err error
			if d, err = tx.Domain(id); err != nil {
				return err
			}
			domains[id] = d
		}
		switch {
		case d == nil || d.AccountID != b.account:
			it.err, it.done = customdomain.NotFound(), true
		case !d.Verified(b.s.opt.Now()):
			it.err, it.done = customdomain.NotVerified(), true
		default:
			it.link.Host = d.Hostname
		}
	}
	return nil
}

// look reads the link and the slug record for each open item.
func (b *batch) look(tx Tx) (open []*item, links []*Link, slugs []*SlugRecord, err error) {
	var ids, keys []string
	for _, it := range b.part {
		if !it.done {
			open = append(open, it)
			ids, keys = append(ids, it.link.ID), append(keys, it.link.Key())
		}
	}
	if len(open) == 0 {
		return nil, nil, nil, nil
	}
	links, slugs, err = tx.Find(ids, keys)
	return open, links, slugs, err
}
