// Package wire implements package [tenant]'s contract for calls between auth and a service.
// auth uses [Client] to call a holder in another service. [Routes] adds the routes to that service.
package wire

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/tenant"
)

// patience bounds each call except Export, which lasts until its caller has read the response.
const patience = 6 * time.Second

// Client is a [tenant.Holder] that calls another service through its internal listener.
type Client struct{ peer *peer.Client }

var (
	_ tenant.Holder   = (*Client)(nil)
	_ tenant.Domains  = (*Client)(nil)
	_ tenant.Webhooks = (*Client)(nil)
)

// NewClient returns a client for a service's internal URL, such as http://links:8090, with the
// token that auth and the service share.
func NewClient(baseURL, token string) *Client {
	return &Client{peer.NewClient(baseURL, token, patience)}
}

// Close closes idle connections.
func (c *Client) Close() { c.peer.Close() }

// SetState implements [tenant.Holder].SetState.
func (c *Client) SetState(ctx context.Context, accountID string, s tenant.Standing) error {
	return answered(c.peer.Call(ctx, statePath, state{accountID, s}, nil))
}

// Erased implements [tenant.Holder].Erased.
func (c *Client) Erased(ctx context.Context, accountID string) (done bool, err error) {
	err = answered(c.peer.Call(ctx, erasurePath, accountID, &done))
	return done, err
}

// TakeDown implements [tenant.Holder].TakeDown.
func (c *Client) TakeDown(ctx context.Context, o tenant.Order) (t tenant.Takedown, err error) {
	err = answered(c.peer.Call(ctx, takePath, o, &t))
	return t, err
}

// Lift implements [tenant.Holder].Lift.
func (c *Client) Lift(ctx context.Context, t tenant.Takedown) error {
	return answered(c.peer.Call(ctx, liftPath, t, nil))
}

// Usable implements [tenant.Domains].Usable.
func (c *Client) Usable(ctx context.Context, accountID, domainID string) error {
	return answered(c.peer.Call(ctx, domainPath, domain{accountID, domainID}, nil))
}

// Failing implements [tenant.Webhooks].Failing.
func (c *Client) Failing(ctx context.Context, after string, limit int) (page tenant.FailingPage, err error) {
	err = answered(c.peer.Call(ctx, failingPath, failing{after, limit}, &page))
	return page, err
}

// Export implements [tenant.Holder].Export. If the response is cut off, Export returns an error, so
// an incomplete export is never mistaken for a complete one.
func (c *Client) Export(ctx context.Context, accountID string, w io.Writer) error {
	ask := export{AccountID: accountID}
	if p := identity.FromContext(ctx); p != nil {
		if ask.KeyID = p.KeyID; p.Session {
			ask.MemberID = p.MemberID
		}
	}
	return answered(c.peer.Copy(ctx, exportPath, ask, w))
}

// answered returns a holder's expected errors unchanged: the target does not exist, the domain
// cannot have links, or the holder is busy. Any other error, such as one for a malformed body, is a
// bug, and auth retries as if the holder were down.
func answered(err error) error {
	var refused *apierr.Error
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.Code {
	case apierr.LinkNotFound, apierr.VideoNotFound, apierr.DomainNotFound, apierr.DomainNotVerified, apierr.RateLimited, apierr.Unavailable:
		return err
	}
	return apierr.Down(err)
}
