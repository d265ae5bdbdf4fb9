// Package tenant is the contract between auth, which makes decisions about accounts, and the
// services that store an account's records (links, videos and events). It contains only types and
// rules. Package wire implements the calls between services.
//
// auth first commits each decision to its own record and marks it as pending. Then it notifies
// every [Holder], and finally it responds to the operator. A loop in auth retries pending
// decisions, so every method is called at least once, and sometimes again after a crash. Therefore
// all methods must be idempotent.
//
// When a holder returns without an error, the decision is in effect: none of its replicas uses the
// previous decision any more. Without Redis, the call can take as long as the
// holder's cache lifetime, which the service documents.
package tenant

import (
	"context"
	"io"
	"time"
)

// State is the state of an account's records: served, suspended or being erased.
type State string

// States. An account without a decision is active.
const (
	Active    State = "active"
	Suspended State = "suspended" // redirects and pages return 410 ACCOUNT_SUSPENDED
	Deleting  State = "deleting"  // like Suspended, and the holder deletes every record
)

// Serves reports whether an account's records are served in this state. An account
// without any decision has the zero state.
func (s State) Serves() bool { return s == "" || s == Active }

// Standing is the state of an account and the version of the decision.
type Standing struct {
	State State `json:"state"`
	// Version increases with each decision. A holder keeps the highest version and ignores lower
	// versions, so a slow call cannot undo a newer decision.
	Version int64 `json:"version"`
}

// Target is the target of a takedown: a public URL, or the id of a record.
type Target struct {
	// URL is a short or share URL. The holder that serves the URL resolves it.
	URL string `json:"url,omitempty"`
	// ID is a link's or a video's id, for the holder of that kind.
	ID string `json:"id,omitempty"`
}

// Order is a request for a takedown. Orders with the same ID request the same takedown.
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
	URL       string    `json:"url"` // the record's public URL
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// Domains is the holder of the accounts' custom domains.
type Domains interface {
	// Usable returns nil if the account may create links on the domain now. Otherwise the error is
	// DOMAIN_NOT_FOUND or DOMAIN_NOT_VERIFIED.
	Usable(ctx context.Context, accountID, domainID string) error
}

// FailingWebhook is a webhook whose last attempt failed.
type FailingWebhook struct {
	ID        string    `json:"id"`
	AccountID string    `json:"accountId"`
	Host      string    `json:"host"` // the receiver's host and port, without its path
	Since     time.Time `json:"since"`
	Reason    string    `json:"reason"`  // why the last attempt failed
	Waiting   int64     `json:"waiting"` // pending deliveries; at most MaxWaiting
}

// MaxWaiting is the highest count reported for a webhook's pending deliveries.
const MaxWaiting = 10_000

// FailingPage is a page of failing webhooks.
type FailingPage struct {
	Webhooks []FailingWebhook `json:"webhooks"`
	Next     string           `json:"next"` // the id after which the next page starts; "" at the end
}

// Webhooks is the holder of the accounts' webhooks.
type Webhooks interface {
	// Failing returns enabled, failing webhooks from all accounts, sorted by id, starting after the
	// id after.
	Failing(ctx context.Context, after string, limit int) (FailingPage, error)
}

// Holder is a service that stores accounts' records. Calls accept unknown account ids because an
// account may have no records in the service.
type Holder interface {
	// SetState sets the state of an account's records. It returns once every replica uses the new
	// state. A standing with a lower version than the previous standing is ignored without an
	// error.
	SetState(ctx context.Context, accountID string, s Standing) error
	// Erased reports whether an account in state Deleting has been reduced to a tombstone. It does
	// not wait for the purge.
	Erased(ctx context.Context, accountID string) (bool, error)
	// Export writes all of the account's data in this service as JSON Lines, each {"type","data"},
	// in constant memory. None of the lines contain secrets.
	Export(ctx context.Context, accountID string, w io.Writer) error
	// TakeDown makes the target return 410 TAKEN_DOWN. The takedown outlives the record: it remains
	// in effect even if the owner deletes the record and creates another record with the same slug.
	// For a target that is already taken down, it returns the existing takedown, with its own ID.
	// The error is LINK_NOT_FOUND or VIDEO_NOT_FOUND if this service does not have the target, for
	// example because the URL belongs to another service.
	TakeDown(ctx context.Context, o Order) (Takedown, error)
	// Lift ends t, but not other takedowns of the same target. It also succeeds if t is not in
	// effect. If auth did not receive the response to TakeDown, t contains only the values from the
	// order: its ID, its Kind, and a RecordID or a URL.
	Lift(ctx context.Context, t Takedown) error
}
