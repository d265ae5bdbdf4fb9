package idempotency

import (
	"context"
	"errors"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/record"
)

// Receipt is the record of a request that is done in one commit, and is written by
// that commit. It costs one write and no read. Of two such requests at once one
// commits, and the other finds its receipt in the way. See [record.WithReceipt].
type Receipt struct {
	s      *Firestore
	r      Request
	id     string
	fresh  document
	answer func() *Response
	kept   bool
}

// Repeated is the error of a change that an earlier request has made.
type Repeated struct {
	Response // the answer to that request
}

func (*Repeated) Error() string { return "an earlier request has done this" }

// Receipt begins a request that is done in one commit. answer is asked at the commit;
// nil is for a commit that is not the one to keep an answer of.
func (s *Firestore) Receipt(r Request, answer func() *Response) *Receipt {
	return &Receipt{s: s, r: r, id: documentID(r), fresh: s.opened(r), answer: answer}
}

// Origin is what the request's records are derived from.
func (p *Receipt) Origin() identity.Origin {
	return identity.Origin{Nonce: p.fresh.Nonce, At: p.fresh.At}
}

// Write implements [record.Receipt].
func (p *Receipt) Write(tx *firestore.Transaction, changed []string) error {
	answer := p.answer()
	if answer == nil {
		return nil
	}
	answer.Changed = changed
	if err := p.close(*answer); err != nil {
		return err
	}
	p.kept = true // or the commit fails, and Found is asked
	return tx.Create(p.s.ref(p.id), p.fresh)
}

func (p *Receipt) close(answer Response) error {
	seals, err := newSeals(p.r, p.id)
	if err != nil {
		return err
	}
	p.fresh.Sealed, p.fresh.Bound, err = seals.close(p.id, answer)
	p.fresh.Done = true
	return err
}

// Found implements [record.Receipt].
func (p *Receipt) Found(ctx context.Context, err error) (changed []string, _ error) {
	p.kept = false
	found, _, lookErr := p.s.find(ctx, p.id)
	switch {
	case errors.Is(lookErr, errExpired):
		return nil, record.ErrAgain
	case errors.Is(lookErr, firestoredb.ErrNotFound):
		return nil, err
	case lookErr != nil:
		return nil, lookErr
	case found.Nonce == p.fresh.Nonce:
		p.kept = true // Our own write. The answer to it was lost, and it was sent again.
		return nil, nil
	}
	if err := p.s.sameBody(found, p.r); err != nil {
		return nil, err
	}
	seals, err := newSeals(p.r, p.id)
	if err != nil {
		return nil, err
	}
	answer, err := seals.replay(p.id, found)
	if err != nil {
		return nil, err
	}
	return answer.Changed, &Repeated{*answer}
}

// Keep keeps the answer of a request that has ended without a commit, such as a
// refusal. The error is [Repeated] when an earlier request has an answer.
func (p *Receipt) Keep(ctx context.Context, answer Response) error {
	if p.kept {
		return nil
	}
	if err := p.close(answer); err != nil {
		return err
	}
	_, err := p.s.create(ctx, p.id, p.fresh)
	if errors.Is(err, firestoredb.ErrExists) {
		_, err = p.Found(ctx, err)
	}
	if errors.Is(err, record.ErrAgain) {
		_, err = p.s.create(ctx, p.id, p.fresh)
	}
	return err
}
