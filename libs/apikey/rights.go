package apikey

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
)

// Rights knows what keys and members may do now, by their public ids. It is for
// what was given out on somebody's behalf and must end with their right to it.
type Rights interface {
	// Scopes are what the key or the member with this id may do in the account. A
	// key that was revoked or has expired, a member who was removed, and an id that
	// is not of this account have none. The answer holds every change that was
	// committed before the call began.
	Scopes(ctx context.Context, accountID, id string) (identity.ScopeSet, error)
}

const rightsPath = "/internal/v1/rights"

type (
	rightsAsk struct {
		AccountID string `json:"accountId"`
		ID        string `json:"id"`
	}
	rightsAnswer struct {
		ID     string            `json:"id"`
		Scopes identity.ScopeSet `json:"scopes"` // not null, so that an answer from elsewhere does not read as "none"
	}
)

var _ Rights = (*HTTPSource)(nil)

// Scopes asks once, and once more when the first try broke or is late, as Verify does.
func (s *HTTPSource) Scopes(ctx context.Context, accountID, id string) (identity.ScopeSet, error) {
	return twice(ctx, s.late, func(ctx context.Context) (identity.ScopeSet, error) { return s.scopes(ctx, accountID, id) })
}

func (s *HTTPSource) scopes(ctx context.Context, accountID, id string) (identity.ScopeSet, error) {
	text, err := s.post(ctx, rightsPath, rightsAsk{accountID, id})
	if err != nil {
		return nil, err
	}
	var a rightsAnswer
	if err := json.Unmarshal(text, &a); err != nil || a.ID != id || a.Scopes == nil {
		return nil, errors.New("auth's answer does not fit the question")
	}
	return a.Scopes, nil
}

func serveRights(w http.ResponseWriter, r *http.Request, rights Rights) {
	var q rightsAsk
	if !asked(w, r, &q) || !identity.ValidID(q.AccountID) || !identity.ValidID(q.ID) {
		answer(w, http.StatusBadRequest, errorBody(apierr.ValidationError, "accountId and id must be identifiers"))
		return
	}
	ctx, end := serving(r, "look up rights")
	defer end()
	scopes, err := rights.Scopes(ctx, q.AccountID, q.ID)
	if err != nil {
		if r.Context().Err() == nil { // a caller that left is no failure of ours
			slog.WarnContext(ctx, "look up rights", "error", err)
		}
		answer(w, http.StatusServiceUnavailable, errorBody(apierr.Unavailable, "rights cannot be looked up right now"))
		return
	}
	if scopes == nil {
		scopes = identity.ScopeSet{}
	}
	answer(w, http.StatusOK, rightsAnswer{q.ID, scopes})
}
