package idempotency

import (
	"context"
	"errors"
	"strings"

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
	d      *document
	answer func() *Response
	kept   bool
}

// Repeated is the error of a change that an earlier request has made.
type Repeated struct {
	Response // to that request
}

func (*Repeated) Error() string { return "an earlier request has done this" }

// Receipt begins a request that is done in one commit. answer is asked at the commit;
// nil is for a commit that is not the one to keep an answer of.
func (s *Firestore) Receipt(r Request, answer func() *Response) *Receipt {
	return &Receipt{s: s, r: r, d: s.opened(r), answer: answer}
}

// Origin is what the request's records are derived from.
func (p *Receipt) Origin() identity.Origin { return p.d.origin() }

// Write implements [record.Receipt].
func (p *Receipt) Write(tx *firestore.Transaction, changed []string) error {
	answer := p.answer()
	if answer == nil {
		return nil
	}
	answer.Changed = changed
	if err := p.d.close(p.r, answer); err != nil {
		return err
	}
	p.kept = true // or the commit fails, and Found is asked
	return tx.Create(p.s.ref(p.r), p.d)
}

// Found implements [record.Receipt].
func (p *Receipt) Found(ctx context.Context, err error) (changed []string, _ error) {
	p.kept = false
	found, _, lookErr := p.s.find(ctx, p.r)
	switch {
	case errors.Is(lookErr, errExpired):
		return nil, record.ErrAgain
	case errors.Is(lookErr, firestoredb.ErrNotFound) && err != nil && strings.Contains(err.Error(), p.r.id()):
		return nil, record.ErrAgain // It was in the way, as the database's words say. Another try has removed it since.
	case errors.Is(lookErr, firestoredb.ErrNotFound):
		return nil, err
	case lookErr != nil:
		return nil, lookErr
	case found.Nonce == p.d.Nonce:
		p.kept = true // Our own write. The answer to it was lost, and it was sent again.
		return nil, nil
	}
	if err := p.s.sameBody(found, p.r); err != nil {
		return nil, err
	}
	answer, err := found.replay(p.r)
	if err != nil {
		return nil, err
	}
	return answer.Changed, &Repeated{*answer}
}

// Keep keeps the answer of a request that has ended without a commit, such as a
// refusal. The error is [Repeated] when an earlier request has an answer.
func (p *Receipt) Keep(ctx context.Context, answer *Response) error {
	if p.kept {
		return nil
	}
	if err := p.d.close(p.r, answer); err != nil {
		return err
	}
	for {
		_, err := p.s.create(ctx, p.r, p.d)
		if errors.Is(err, firestoredb.ErrExists) {
			_, err = p.Found(ctx, err)
		}
		if !errors.Is(err, record.ErrAgain) {
			return err
		}
	}
}
