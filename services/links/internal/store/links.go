package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/firestore"
	"cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Get reads a link of the account.
func (s *Store) Get(ctx context.Context, accountID, id string) (*link.Link, error) {
	if !validID(id) {
		return nil, link.NotFound()
	}
	var d linkDoc
	found, err := s.get(ctx, "get link", s.linkRef(id), &d)
	if err != nil {
		return nil, err
	}
	if !found || d.AccountID != accountID {
		return nil, link.NotFound()
	}
	return linkOf(id, &d), nil
}

// validID keeps a caller's text from becoming a document path.
func validID(id string) bool {
	if len(id) == 0 || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return !strings.HasPrefix(id, "__") // reserved names
}

// List reads the account's links with a seq below before, newest first. One more
// than limit is read to know whether more follow.
func (s *Store) List(ctx context.Context, accountID string, before int64, limit int) (page []*link.Link, more bool, err error) {
	q := s.db.Collection("links").Where("accountId", "==", accountID).OrderBy("seq", firestore.Desc).
		Select("seq", "slug", "url", "title", "clicks", "createdAt").Limit(limit + 1)
	if before != link.Top {
		q = q.Where("seq", "<", before)
	}
	err = s.db.Do(ctx, "list links", func(ctx context.Context) error {
		snaps, err := q.Documents(ctx).GetAll()
		if err != nil {
			return err
		}
		page = make([]*link.Link, 0, len(snaps))
		for _, snap := range snaps {
			var d linkDoc
			if err := snap.DataTo(&d); err != nil {
				return fmt.Errorf("read link %s: %w", snap.Ref.ID, err)
			}
			page = append(page, linkOf(snap.Ref.ID, &d))
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	if len(page) > limit {
		return page[:limit], true, nil
	}
	return page, false, nil
}

// Update changes a link of the account. check sees the link's revision first and
// may refuse.
func (s *Store) Update(ctx context.Context, accountID, id string, check func(rev int64) error, p link.Patch) (*link.Link, error) {
	var out *link.Link
	err := s.edit(ctx, "update link", accountID, id, check, func(tx *firestore.Transaction, l *link.Link) error {
		out = l
		if !l.Apply(p, s.now()) {
			return nil
		}
		err := tx.Update(s.linkRef(id), []firestore.Update{
			{Path: "url", Value: l.Destination.Given}, {Path: "location", Value: l.Destination.Location}, {Path: "title", Value: l.Title},
			{Path: "og", Value: ogOf(l.Preview)}, {Path: "expiresAt", Value: msOf(l.Expiry)},
			{Path: "updatedAt", Value: l.UpdatedAt}, {Path: "rev", Value: l.Rev},
		})
		if err != nil {
			return err
		}
		return tx.Set(s.slugRef(link.SlugKey(l.DomainID, l.Slug.Folded())), slugDocOf(l))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Delete removes a link of the account and closes its slug to others for
// [link.Quarantine].
func (s *Store) Delete(ctx context.Context, accountID, id string, check func(rev int64) error) (*link.Link, error) {
	var out *link.Link
	err := s.edit(ctx, "delete link", accountID, id, check, func(tx *firestore.Transaction, l *link.Link) error {
		out = l
		if err := tx.Delete(s.linkRef(id)); err != nil {
			return err
		}
		until := s.now().Add(link.Quarantine)
		return tx.Set(s.slugRef(link.SlugKey(l.DomainID, l.Slug.Folded())), &slugDoc{AccountID: accountID, ReleasedUntil: &until})
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Store) edit(ctx context.Context, what, accountID, id string, check func(int64) error, fn func(*firestore.Transaction, *link.Link) error) error {
	if !validID(id) {
		return link.NotFound()
	}
	return s.db.Tx(ctx, what, func(_ context.Context, tx *firestore.Transaction) error {
		snap, err := tx.Get(s.linkRef(id))
		if snap != nil && !snap.Exists() {
			return link.NotFound()
		}
		if err != nil {
			return err
		}
		var d linkDoc
		if err := snap.DataTo(&d); err != nil {
			return err
		}
		if d.AccountID != accountID {
			return link.NotFound()
		}
		if err := check(d.Rev); err != nil {
			return err
		}
		return fn(tx, linkOf(id, &d))
	})
}

// Target reads what a redirect needs of the slug with this [SlugKey]; found is
// false for a slug that never was and for a deleted one.
func (s *Store) Target(ctx context.Context, key string) (t link.Target, found bool, err error) {
	var d slugDoc
	found, err = s.get(ctx, "resolve slug", s.slugRef(key), &d)
	if err != nil || !found || d.released() {
		return link.Target{}, false, err
	}
	return targetOf(&d), true, nil
}

// Create makes the drafts, in their order, which also is their order in time.
// Either the error is set and the caller may try again with the same origin, or
// each draft has its own result. All drafts are written in one commit.
func (s *Store) Create(ctx context.Context, accountID string, o link.Origin, drafts []link.Draft) ([]link.Result, error) {
	b := newBatch(s, accountID, o, drafts)
	// Without a wish for a slug nothing can be in the way but chance, and a single
	// wish is mostly free: write first, look only when that fails.
	if b.domainID() == "" && !o.Replay && (len(drafts) == 1 || !b.wishes()) {
		err := s.db.Commit(ctx, "create links", func(tx *firestore.Transaction) error { return b.writeAll(tx) })
		if err == nil {
			return b.results(), nil
		}
		if !lookAgain(err) {
			return nil, err
		}
	}
	for range 8 {
		again, err := b.create(ctx)
		if err != nil && !lookAgain(err) {
			return nil, err
		}
		if err == nil && !again {
			return b.results(), nil
		}
	}
	return nil, fmt.Errorf("create links: no free place after several tries")
}

// lookAgain reports whether a look at the documents tells more than the error.
func lookAgain(err error) bool {
	return errors.Is(err, firestoredb.ErrExists) || errors.Is(err, firestoredb.ErrUncertain)
}

// batch is the drafts of one request on their way into the store.
type batch struct {
	s       *Store
	account string
	origin  link.Origin
	items   []*item
}

type item struct {
	draft link.Draft
	nonce string
	try   int // drawn slugs so far
	moves int // places found taken so far
	link  *link.Link
	done  bool // its result stands; nothing more to write
	err   error
}

func newBatch(s *Store, accountID string, o link.Origin, drafts []link.Draft) *batch {
	b := &batch{s: s, account: accountID, origin: o}
	// The time of creation is the list's order, and in milliseconds what callers
	// see; drafts of one request follow each other by a microsecond.
	at := o.At.UTC()
	for i, d := range drafts {
		it := &item{draft: d, nonce: fmt.Sprintf("%s/%d", o.Nonce, i)}
		it.link = &link.Link{
			AccountID: accountID, DomainID: d.DomainID, Slug: d.Slug, Destination: d.Destination, Title: d.Title, Preview: d.Preview, Expiry: d.Expiry,
			CreatedAt: at.Truncate(time.Millisecond), UpdatedAt: at.Truncate(time.Millisecond), Rev: 1,
		}
		it.place(at.UnixMicro() + int64(i))
		if d.Slug.IsZero() {
			it.draw()
		}
		b.items = append(b.items, it)
	}
	return b
}

// place gives the link its place in the account's list and so its id.
func (it *item) place(seq int64) {
	it.link.Seq = seq
	it.link.ID = linkID(it.link.AccountID, seq)
}

// move takes the item on to another place, past those of its batch. The step
// depends on the request alone, so that a repeated request walks the same way;
// below a millisecond, so that the order stays that of time.
func (b *batch) move(it *item) {
	it.moves++
	seq := it.link.Seq + stepFrom(it.nonce, it.moves)
	for b.has(seq) {
		seq++
	}
	it.place(seq)
}

func (b *batch) has(seq int64) bool {
	return slices.ContainsFunc(b.items, func(it *item) bool { return it.link.Seq == seq })
}

// draw takes the next random slug: the nonce is random, and its hash is no less
// so. After a few collisions slugs get longer.
func (it *item) draw() {
	length := link.GeneratedSlugLength + it.try/3
	it.link.Slug = link.StoredSlug(slugFrom(it.nonce, it.try, length))
	it.try++
}

func (it *item) key() string { return link.SlugKey(it.link.DomainID, it.link.Slug.Folded()) }

func (b *batch) domainID() string { return b.items[0].draft.DomainID }

func (b *batch) wishes() bool {
	for _, it := range b.items {
		if !it.draft.Slug.IsZero() {
			return true
		}
	}
	return false
}

func (b *batch) writeAll(tx *firestore.Transaction) error {
	for _, it := range b.items {
		if err := b.write(tx, it, false); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) write(tx *firestore.Transaction, it *item, overTombstone bool) error {
	if err := tx.Create(b.s.linkRef(it.link.ID), docOf(it.link, it.nonce)); err != nil {
		return err
	}
	if overTombstone {
		return tx.Set(b.s.slugRef(it.key()), slugDocOf(it.link))
	}
	return tx.Create(b.s.slugRef(it.key()), slugDocOf(it.link))
}

func (b *batch) results() []link.Result {
	out := make([]link.Result, len(b.items))
	for i, it := range b.items {
		out[i] = link.Result{Link: it.link, Err: it.err}
		if it.err != nil {
			out[i].Link = nil
		}
	}
	return out
}

// create looks at everything that can be in the way, in one read, and writes
// what has its place. It asks to be called again when a place or a drawn slug
// was taken.
func (b *batch) create(ctx context.Context) (again bool, err error) {
	err = b.s.db.Tx(ctx, "create links", func(_ context.Context, tx *firestore.Transaction) error {
		moved := false
		if err := b.onDomain(tx); err != nil {
			return err
		}
		open, snaps, err := b.look(tx)
		if err != nil {
			return err
		}
		claimed := map[string]bool{}
		type writing struct {
			it        *item
			tombstone bool
		}
		var writes []writing
		for i, it := range open {
			placeTaken, mine, err := it.atPlace(snaps[2*i])
			if err != nil {
				return err
			}
			if mine != nil {
				it.link, it.done = mine, true
				claimed[it.key()] = true
				continue
			}
			slugFree, tombstone, err := b.slugFree(snaps[2*i+1])
			if err != nil {
				return err
			}
			switch {
			case placeTaken:
				b.move(it)
				moved = true
			case slugFree && !claimed[it.key()]:
				claimed[it.key()] = true
				writes = append(writes, writing{it, tombstone})
			case it.draft.Slug.IsZero():
				it.draw()
				moved = true
			default:
				it.err, it.done = link.SlugTaken(), true
			}
		}
		if moved {
			// Places move together with all that was decided: nothing is written yet,
			// and what was decided holds for the next look as well.
			for _, it := range open {
				if it.err != nil {
					it.err, it.done = nil, false
				}
			}
			return errAgain
		}
		if len(writes) == 0 {
			return errNothing
		}
		for _, w := range writes {
			if err := b.write(tx, w.it, w.tombstone); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errNothing):
		return false, nil
	case errors.Is(err, errAgain):
		return true, nil
	}
	return false, err
}

// These end a transaction that has nothing to write: a commit of nothing is one
// more call that can fail.
var (
	errNothing = errors.New("nothing to write")
	errAgain   = errors.New("look again")
)

// onDomain makes the commit depend on the domain: it cannot be deleted at the
// same time.
func (b *batch) onDomain(tx *firestore.Transaction) error {
	id := b.domainID()
	if id == "" {
		return nil
	}
	d, err := b.s.domainIn(tx, id)
	if err != nil {
		return err
	}
	switch {
	case d == nil || d.AccountID != b.account:
		return customdomain.NotFound()
	case !d.Verified(b.s.now()):
		return customdomain.NotVerified()
	}
	for _, it := range b.items {
		it.link.Host = d.Hostname
	}
	return nil
}

// look reads the link and the slug document of each open item.
func (b *batch) look(tx *firestore.Transaction) ([]*item, []*firestore.DocumentSnapshot, error) {
	var open []*item
	var refs []*firestore.DocumentRef
	for _, it := range b.items {
		if !it.done {
			open = append(open, it)
			refs = append(refs, b.s.linkRef(it.link.ID), b.s.slugRef(it.key()))
		}
	}
	if len(refs) == 0 {
		return nil, nil, nil
	}
	snaps, err := tx.GetAll(refs)
	return open, snaps, err
}

// atPlace reports whether another link has the item's place, or returns the link
// that an earlier try of the same request put there.
func (it *item) atPlace(snap *firestore.DocumentSnapshot) (taken bool, mine *link.Link, err error) {
	if !snap.Exists() {
		return false, nil, nil
	}
	var d linkDoc
	if err := snap.DataTo(&d); err != nil {
		return false, nil, err
	}
	if d.Nonce == it.nonce {
		return true, linkOf(snap.Ref.ID, &d), nil
	}
	return true, nil, nil
}

func (b *batch) slugFree(snap *firestore.DocumentSnapshot) (free, tombstone bool, err error) {
	if !snap.Exists() {
		return true, false, nil
	}
	var d slugDoc
	if err := snap.DataTo(&d); err != nil {
		return false, false, err
	}
	return d.freeFor(b.account, b.s.now()), true, nil
}

// CountLinks counts the account's links.
func (s *Store) CountLinks(ctx context.Context, accountID string) (n int, err error) {
	err = s.db.Do(ctx, "count links", func(ctx context.Context) error {
		q := s.db.Collection("links").Where("accountId", "==", accountID)
		found, err := q.NewAggregationQuery().WithCount("n").Get(ctx)
		if err != nil {
			return err
		}
		if v, ok := found["n"].(*firestorepb.Value); ok {
			n = int(v.GetIntegerValue())
		}
		return nil
	})
	return n, err
}
