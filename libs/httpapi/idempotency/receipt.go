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

// Receipt is the record for a request that takes effect in one commit. That commit also writes the
// receipt, which costs one write and no reads. If two attempts run at the same time, one of them
// commits, and the other fails because the receipt already exists. See [record.WithReceipt].
type Receipt struct {
	s      *Firestore
	r      Request
	d      *document
	answer func() *Response
	kept   bool
}

// Repeated is the error for a change that an earlier request has already made.
type Repeated struct {
	Response // the response to the earlier request
}

func (*Repeated) Error() string { return "an earlier request has already made this change" }

// Receipt returns the receipt for a request that takes effect in one commit. answer is called on
// each commit. It must return nil for a commit that does not belong to the request.
func (s *Firestore) Receipt(r Request, answer func() *Response) *Receipt {
	return &Receipt{s: s, r: r, d: s.opened(r), answer: answer}
}

// Origin returns the origin from which the ids of the request's records are derived.
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
	p.kept = true // if the commit fails, Found corrects this
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
		return nil, record.ErrAgain // the error names this receipt, so another attempt has removed it since
	case errors.Is(lookErr, firestoredb.ErrNotFound):
		return nil, err
	case lookErr != nil:
		return nil, lookErr
	case found.Nonce == p.d.Nonce:
		p.kept = true // This attempt's own write: its response was lost, so the client library repeated it.
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

// Keep stores the response to a request that ended without a commit, such as an error response. If
// an earlier request has already stored a response, the error is [Repeated].
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
