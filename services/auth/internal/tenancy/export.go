package tenancy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Limits of the exports of one replica: each keeps the services that hold records
// busy until its reader has read it all. An account may have two, so that one
// whose reader has gone away does not keep it from the next.
const (
	maxExportsOfAccount = 2
	maxExports          = 16
)

// Line is a line of an export.
type Line struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// Export notes that an export was asked for, and writes first, then what each
// holder has. RATE_LIMITED, before anything is written, when too many are running.
func (s *Service) Export(ctx context.Context, accountID string, first []Line, w io.Writer) error {
	end, ok := s.exports.Take(accountID)
	if !ok {
		return &apierr.Error{Code: apierr.RateLimited, RetryAfter: 30 * time.Second, Message: "Too many exports are running already. Try again when one of them has ended."}
	}
	defer end()
	// Before the first byte, so that an export that breaks off is on record as well.
	if err := s.exported(ctx, accountID); err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, l := range first {
		if err := enc.Encode(l); err != nil {
			return fmt.Errorf("write export: %w", err)
		}
	}
	for _, h := range s.holders {
		if err := h.Export(ctx, accountID, w); err != nil {
			return fmt.Errorf("export what %s holds: %w", h.Name, err)
		}
	}
	return nil
}

// exported notes that an export was asked for, before it begins.
func (s *Service) exported(ctx context.Context, accountID string) error {
	by := ""
	if p := identity.FromContext(ctx); p != nil {
		by = p.KeyID
	}
	s.log.InfoContext(ctx, "audit", "action", "account.export", "account", accountID, "by", by)
	return s.store.Atomically(ctx, "note export", func(tx account.Tx) error {
		a, err := tx.Account(accountID)
		if err != nil {
			return err
		}
		return tx.Note(accountID, events.AccountExported, accountID, a)
	})
}
