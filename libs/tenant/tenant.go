// Package tenant is the contract between auth, which decides about accounts, and the
// services that hold an account's records (links, videos and events). It has only types
// and rules; package wire carries them between services.
//
// auth commits each decision to its own record first and marks it as pending,
// then tells every [Holder], and only then answers the operator. A loop in auth
// repeats pending decisions, so every method here is called at least once, and
// sometimes again after a crash: all of them are idempotent.
//
// When a holder returns without an error, the decision is in effect: none of its
// replicas still acts on the earlier one. Without Redis, that takes as long as the
// service documents for its own caches.
package tenant

import (
	"context"
	"io"
	"time"
)

// State says whether an account's records are served or being erased.
type State string

// The states. If a holder has no record of an account, the account is active.
const (
	Active    State = "active"
	Suspended State = "suspended" // redirects and pages answer 410 ACCOUNT_SUSPENDED
	Deleting  State = "deleting"  // as suspended, and the holder purges every record
)

// Serves reports whether records of an account in this state are served. An account
// without any decision has the zero state.
func (s State) Serves() bool { return s == "" || s == Active }

// Standing is an account's state and the version of the account that decided it.
type Standing struct {
	State State `json:"state"`
	// Version grows with each decision. A holder keeps the highest one and ignores
	// lower ones, so a slow call cannot undo a newer decision.
	Version int64 `json:"version"`
}

// Target is the target of a takedown: a public address, or the id of a record.
type Target struct {
	// URL is a short or share address. The holder that serves the address resolves it.
	URL string `json:"url,omitempty"`
	// ID is a link's or a video's id, for the holder of that kind.
	ID string `json:"id,omitempty"`
}

// Order asks for a takedown. Orders with the same ID ask for the same takedown.
type Order struct {
	ID     string    `json:"id"`
	Target Target    `json:"target"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// The kinds of records that can be taken down.
const (
	KindLink  = "link"
	KindVideo = "video"
)

// Takedown is a takedown in effect.
type Takedown struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"` // KindLink or KindVideo
	RecordID  string    `json:"recordId"`
	AccountID string    `json:"accountId"`
	URL       string    `json:"url"` // the record's public address
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// Domains is the holder of the accounts' custom domains.
type Domains interface {
	// Usable returns nil if the account may make links on the domain now. Otherwise the error
	// is DOMAIN_NOT_FOUND or DOMAIN_NOT_VERIFIED.
	Usable(ctx context.Context, accountID, domainID string) error
}

// FailingWebhook is a webhook whose last attempt failed.
type FailingWebhook struct {
	ID        string    `json:"id"`
	AccountID string    `json:"accountId"`
	Host      string    `json:"host"` // the receiver's host and port, without its path
	Since     time.Time `json:"since"`
	Reason    string    `json:"reason"`  // why the last attempt failed
	Waiting   int64     `json:"waiting"` // deliveries that are not delivered yet; at most MaxWaiting
}

// MaxWaiting is where the count of a webhook's waiting deliveries stops.
const MaxWaiting = 10_000

// FailingPage is a page of failing webhooks.
type FailingPage struct {
	Webhooks []FailingWebhook `json:"webhooks"`
	Next     string           `json:"next"` // the id after which the next page starts; "" at the end
}

// Webhooks is the holder of the accounts' webhooks.
type Webhooks interface {
	// Failing lists enabled webhooks that fail, of all accounts, by id, starting after the id
	// after.
	Failing(ctx context.Context, after string, limit int) (FailingPage, error)
}

// Holder is a service that holds records of accounts. Calls accept account ids that the
// service has never seen, because the account may own nothing there.
type Holder interface {
	// SetState puts an account's records into a state. It returns once every
	// replica acts on it. A standing with a lower version than the last one is
	// ignored, without an error.
	SetState(ctx context.Context, accountID string, s Standing) error
	// Erased reports whether this service has only a tombstone left of an account in state
	// Deleting. It never waits for the purge.
	Erased(ctx context.Context, accountID string) (bool, error)
	// Export writes everything that the service holds of the account as JSON Lines, each
	// {"type","data"}, in constant memory. No line holds a secret.
	Export(ctx context.Context, accountID string, w io.Writer) error
	// TakeDown makes the target answer 410 TAKEN_DOWN. The takedown outlives the record: it
	// stays in effect even if the owner deletes the record and creates another under the same
	// slug. For a target that is already taken down it returns the takedown in effect, which
	// has another ID than the order. The error is LINK_NOT_FOUND or VIDEO_NOT_FOUND when this
	// service does not have the target, for example because the address belongs to another
	// service.
	TakeDown(ctx context.Context, o Order) (Takedown, error)
	// Lift ends t, and only t. It also succeeds if t is not in effect.
	Lift(ctx context.Context, t Takedown) error
}
