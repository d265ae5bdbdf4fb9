package wire

import (
	"context"
	"io"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/tenant"
)

// The routes in Client and Routes. The table in libs/peer lists all internal routes.
const (
	statePath   = "/internal/v1/accounts/state"
	erasurePath = "/internal/v1/accounts/erasure"
	exportPath  = "/internal/v1/accounts/export"
	domainPath  = "/internal/v1/accounts/domain"
	failingPath = "/internal/v1/accounts/failing-webhooks"
	takePath    = "/internal/v1/takedowns/take"
	liftPath    = "/internal/v1/takedowns/lift"
)

type (
	state struct {
		AccountID string `json:"accountId"`
		tenant.Standing
	}
	// export identifies the key or session that requested the export. Download URLs in the export
	// become invalid when the key or session loses its rights.
	export struct {
		AccountID string `json:"accountId"`
		KeyID     string `json:"keyId,omitempty"`
		MemberID  string `json:"memberId,omitempty"` // the member, if a session requested the export
	}
	domain struct {
		AccountID string `json:"accountId"`
		DomainID  string `json:"domainId"`
	}
	failing struct {
		After string `json:"after"`
		Limit int    `json:"limit"`
	}
	done struct{}
)

// Routes adds the routes for holder to a service's internal API. token is the secret that auth and
// the service share. If token is empty, every call is rejected.
func Routes(h *httpapi.API, token string, holder tenant.Holder) {
	door := peer.NewDoor(h, map[peer.Service]string{peer.Auth: token})
	peer.Answer(door, statePath, func(ctx context.Context, in state) (done, error) {
		if in.State != tenant.Active && in.State != tenant.Suspended && in.State != tenant.Deleting || in.Version < 1 {
			return done{}, apierr.Invalid(apierr.Detail{
				Field: "state", Code: apierr.InvalidValue, Message: "Give a known state and a positive version.",
			})
		}
		return done{}, holder.SetState(ctx, in.AccountID, in.Standing)
	})
	peer.Answer(door, erasurePath, holder.Erased)
	peer.Stream(door, exportPath, func(ctx context.Context, in export, w io.Writer) error {
		if in.KeyID != "" {
			ctx = identity.WithPrincipal(ctx, &identity.Principal{
				AccountID: in.AccountID, KeyID: in.KeyID, Session: in.MemberID != "", MemberID: in.MemberID,
			})
		}
		return holder.Export(ctx, in.AccountID, w)
	})
	if domains, ok := holder.(tenant.Domains); ok {
		peer.Answer(door, domainPath, func(ctx context.Context, in domain) (done, error) {
			return done{}, domains.Usable(ctx, in.AccountID, in.DomainID)
		})
	}
	if webhooks, ok := holder.(tenant.Webhooks); ok {
		peer.Answer(door, failingPath, func(ctx context.Context, in failing) (tenant.FailingPage, error) {
			return webhooks.Failing(ctx, in.After, min(max(in.Limit, 1), 100))
		})
	}
	peer.Answer(door, takePath, func(ctx context.Context, in tenant.Order) (tenant.Takedown, error) {
		if in.ID == "" || (in.Target.URL == "") == (in.Target.ID == "") {
			return tenant.Takedown{}, apierr.Invalid(apierr.Detail{
				Field: "target", Code: apierr.Required, Message: "Give an id, and either an address or a record's id.",
			})
		}
		return holder.TakeDown(events.AsOperator(ctx), in)
	})
	peer.Answer(door, liftPath, func(ctx context.Context, in tenant.Takedown) (done, error) {
		return done{}, holder.Lift(events.AsOperator(ctx), in)
	})
}
