// Package apierr defines every error that callers of Linkreel can see. A function that knows why a
// request cannot be served returns an [Error] with a [Code]. A single table maps codes to HTTP
// statuses, and only httpapi writes the body. Any other error reaches the caller as an opaque
// INTERNAL, so paths, stack traces and store names do not leak.
package apierr

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Code names a kind of failure. Codes are part of the public API: callers branch on them, so they
// are never renamed.
type Code string

// Public API codes, each with its HTTP status.
const (
	BadRequest        Code = "BAD_REQUEST"        // 400: the request is malformed or ambiguous HTTP
	InvalidJSON       Code = "INVALID_JSON"       // 400: the body is not a single JSON object
	ValidationError   Code = "VALIDATION_ERROR"   // 400: a field or parameter breaks a rule; see Details
	InvalidCursor     Code = "INVALID_CURSOR"     // 400: a cursor that this deployment did not issue
	MissingAPIKey     Code = "MISSING_API_KEY"    // 401
	InvalidAPIKey     Code = "INVALID_API_KEY"    // 401
	APIKeyExpired     Code = "API_KEY_EXPIRED"    // 401
	APIKeyRevoked     Code = "API_KEY_REVOKED"    // 401
	PlanRequired      Code = "PLAN_REQUIRED"      // 403: with RequiredPlan and CurrentPlan
	InsufficientScope Code = "INSUFFICIENT_SCOPE" // 403: with RequiredScope
	QuotaExceeded     Code = "QUOTA_EXCEEDED"     // 403
	AccountSuspended  Code = "ACCOUNT_SUSPENDED"  // 403
	Forbidden         Code = "FORBIDDEN"          // 403: the action is not allowed; never used for an API record

	NotFound       Code = "NOT_FOUND"        // 404: no path, account or key matches
	LinkNotFound   Code = "LINK_NOT_FOUND"   // 404: does not exist, or belongs to another account
	VideoNotFound  Code = "VIDEO_NOT_FOUND"  // 404: does not exist, or belongs to another account
	DomainNotFound Code = "DOMAIN_NOT_FOUND" // 404: does not exist, or belongs to another account

	WebhookNotFound  Code = "WEBHOOK_NOT_FOUND"  // 404: does not exist, or belongs to another account
	DeliveryNotFound Code = "DELIVERY_NOT_FOUND" // 404: not found, expired, or belongs to another webhook

	MethodNotAllowed     Code = "METHOD_NOT_ALLOWED"     // 405: with Allow
	PreconditionFailed   Code = "PRECONDITION_FAILED"    // 412: If-Match names an outdated version
	BodyTooLarge         Code = "BODY_TOO_LARGE"         // 413: over 1 MiB
	UnsupportedMediaType Code = "UNSUPPORTED_MEDIA_TYPE" // 415
	HeadersTooLarge      Code = "HEADERS_TOO_LARGE"      // 431

	SlugTaken             Code = "SLUG_TAKEN"              // 409
	LastOwner             Code = "LAST_OWNER"              // 409: an account must keep an owner
	AlreadyMember         Code = "ALREADY_MEMBER"          // 409: the invited person is already a member
	IdentityTaken         Code = "IDENTITY_TAKEN"          // 409: the sign-in identity belongs to another person
	HasSignIn             Code = "HAS_SIGN_IN"             // 409: the member does not need a sign-in link
	SignInByProvider      Code = "SIGN_IN_BY_PROVIDER"     // 409: the identity provider must confirm the member
	DomainNotVerified     Code = "DOMAIN_NOT_VERIFIED"     // 409
	DomainTaken           Code = "DOMAIN_TAKEN"            // 409
	DomainInUse           Code = "DOMAIN_IN_USE"           // 409
	AccountNotSuspended   Code = "ACCOUNT_NOT_SUSPENDED"   // 409: only a suspended account can be deleted
	AccountDeleting       Code = "ACCOUNT_DELETING"        // 409: the account is being erased
	ExternalIDTaken       Code = "EXTERNAL_ID_TAKEN"       // 409: another record of this kind already uses it
	WebhookDisabled       Code = "WEBHOOK_DISABLED"        // 409: a disabled webhook does not receive test messages
	AuthorizationPending  Code = "AUTHORIZATION_PENDING"   // 409: the device's request is still pending
	IdempotencyInProgress Code = "IDEMPOTENCY_IN_PROGRESS" // 409
	IdempotencyKeyReused  Code = "IDEMPOTENCY_KEY_REUSED"  // 422

	Gone        Code = "GONE"         // 410: on public pages, an expired link or video
	TakenDown   Code = "TAKEN_DOWN"   // 410: on public pages, a link or video that the operator took down
	CursorAhead Code = "CURSOR_AHEAD" // 410: a position in the feed that a restore has removed; see RestartAfter
	RateLimited Code = "RATE_LIMITED" // 429: with Retry-After
	Internal    Code = "INTERNAL"     // 500: an unexpected error; the log has the cause
	Unavailable Code = "UNAVAILABLE"  // 503: a dependency is down; with Retry-After
)

// statuses is the only table that maps a failure to an HTTP status.
var statuses = map[Code]int{
	BadRequest:            http.StatusBadRequest,
	InvalidJSON:           http.StatusBadRequest,
	ValidationError:       http.StatusBadRequest,
	InvalidCursor:         http.StatusBadRequest,
	MissingAPIKey:         http.StatusUnauthorized,
	InvalidAPIKey:         http.StatusUnauthorized,
	APIKeyExpired:         http.StatusUnauthorized,
	APIKeyRevoked:         http.StatusUnauthorized,
	PlanRequired:          http.StatusForbidden,
	InsufficientScope:     http.StatusForbidden,
	QuotaExceeded:         http.StatusForbidden,
	AccountSuspended:      http.StatusForbidden,
	Forbidden:             http.StatusForbidden,
	NotFound:              http.StatusNotFound,
	LinkNotFound:          http.StatusNotFound,
	VideoNotFound:         http.StatusNotFound,
	DomainNotFound:        http.StatusNotFound,
	WebhookNotFound:       http.StatusNotFound,
	DeliveryNotFound:      http.StatusNotFound,
	MethodNotAllowed:      http.StatusMethodNotAllowed,
	PreconditionFailed:    http.StatusPreconditionFailed,
	BodyTooLarge:          http.StatusRequestEntityTooLarge,
	UnsupportedMediaType:  http.StatusUnsupportedMediaType,
	HeadersTooLarge:       http.StatusRequestHeaderFieldsTooLarge,
	SlugTaken:             http.StatusConflict,
	LastOwner:             http.StatusConflict,
	AlreadyMember:         http.StatusConflict,
	IdentityTaken:         http.StatusConflict,
	HasSignIn:             http.StatusConflict,
	SignInByProvider:      http.StatusConflict,
	DomainNotVerified:     http.StatusConflict,
	DomainTaken:           http.StatusConflict,
	DomainInUse:           http.StatusConflict,
	AccountNotSuspended:   http.StatusConflict,
	AccountDeleting:       http.StatusConflict,
	ExternalIDTaken:       http.StatusConflict,
	WebhookDisabled:       http.StatusConflict,
	AuthorizationPending:  http.StatusConflict,
	IdempotencyInProgress: http.StatusConflict,
	IdempotencyKeyReused:  http.StatusUnprocessableEntity,
	Gone:                  http.StatusGone,
	TakenDown:             http.StatusGone,
	CursorAhead:           http.StatusGone,
	RateLimited:           http.StatusTooManyRequests,
	Internal:              http.StatusInternalServerError,
	Unavailable:           http.StatusServiceUnavailable,
}

// Status returns the HTTP status of c, or 500 for an unknown code.
func (c Code) Status() int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// DocURL returns the path of the page that explains c, relative to the deployment's base URL.
func (c Code) DocURL() string { return "/docs/guides/errors#" + strings.ToLower(string(c)) }

// Codes returns every code that has a status, for the documentation and the tests.
func Codes() []Code {
	out := make([]Code, 0, len(statuses))
	for c := range statuses {
		out = append(out, c)
	}
	return out
}

// DetailCode identifies the rule that a field violates.
type DetailCode = string

// Rules that a field can violate.
const (
	Required      DetailCode = "required"
	InvalidType   DetailCode = "invalid_type"
	InvalidValue  DetailCode = "invalid_value"
	InvalidFormat DetailCode = "invalid_format"
	TooLong       DetailCode = "too_long"
	TooShort      DetailCode = "too_short"
	OutOfRange    DetailCode = "out_of_range"
	NotAllowed    DetailCode = "not_allowed"
	Reserved      DetailCode = "reserved"
	SelfReference DetailCode = "self_reference"

	// BlockedDestination means that the operator does not allow the destination's host.
	BlockedDestination DetailCode = "blocked_destination"

	Unknown DetailCode = "unknown"
)

// Detail describes a rule that a field violates. Message never repeats the value, which may be a
// password. Max and Min are set if the rule has a bound.
type Detail struct {
	Field   string     `json:"field"`
	Code    DetailCode `json:"code"`
	Message string     `json:"message"`
	Max     int64      `json:"max,omitempty"`
	Min     int64      `json:"min,omitempty"`
}

// Error is a failure with a code. Message is for the caller. Err is for the log and is
// never sent.
type Error struct {
	Code    Code
	Message string
	Details []Detail
	// MoreDetails is the number of violated rules beyond [MaxDetails].
	MoreDetails int

	RequiredPlan, CurrentPlan string // with PlanRequired
	RequiredScope             string // with InsufficientScope
	RequiredRole              string // with InsufficientScope, if only a higher role helps
	RestartAfter              string // with CursorAhead: the cursor to resume from
	StartsAt                  int64  // with NotFound: when the link starts, in ms since 1970, or 0

	// OnPage marks an error on a public page, where a suspended account's links and videos return
	// 410. API calls return 403.
	OnPage bool

	RetryAfter time.Duration // with RateLimited, Unavailable, IdempotencyInProgress
	Allow      []string      // with MethodNotAllowed
	ETag       string        // with PreconditionFailed: the current version of the record
	Err        error
}

// New returns an error with a message for the caller.
func New(code Code, message string) *Error { return &Error{Code: code, Message: message} }

// Wrap is [New] with a cause for the log.
func Wrap(code Code, message string, err error) *Error {
	return &Error{Code: code, Message: message, Err: err}
}

// MaxDetails is the maximum number of violated rules that a response lists.
const MaxDetails = 50

// Invalid returns a VALIDATION_ERROR that lists every violated rule.
func Invalid(details ...Detail) *Error {
	return &Error{Code: ValidationError, Message: "One or more fields are not valid.", Details: details}
}

// InvalidSome is [Invalid] for an incomplete list. more is the number of omitted details.
func InvalidSome(more int, details ...Detail) *Error {
	e := Invalid(details...)
	if e.MoreDetails = more; more > 0 {
		listed := "first is"
		if n := len(details); n > 1 {
			listed = fmt.Sprintf("first %d are", n)
		}
		e.Message = fmt.Sprintf("%d fields are not valid. The %s listed.", len(details)+more, listed)
	}
	return e
}

// Down returns an UNAVAILABLE error that asks the caller to retry after a second.
func Down(err error) *Error {
	return &Error{Code: Unavailable, Message: "The service cannot do this right now. Try again shortly.", RetryAfter: time.Second, Err: err}
}

// Contended returns a RATE_LIMITED error for a change that timed out because of concurrent changes
// to the same record or account. It asks the caller to retry after a second.
func Contended(err error) *Error {
	return &Error{Code: RateLimited, Message: "Too many concurrent requests are changing this record or account. Try again after the time in Retry-After.", RetryAfter: time.Second, Err: err}
}

// Status returns the HTTP status of e's code. On public pages, ACCOUNT_SUSPENDED is 410 instead of
// 403.
func (e *Error) Status() int {
	if e.OnPage && e.Code == AccountSuspended {
		return http.StatusGone
	}
	return e.Code.Status()
}

func (e *Error) Error() string {
	s := string(e.Code)
	if e.Message != "" {
		s += ": " + e.Message
	}
	for _, d := range e.Details {
		s += fmt.Sprintf(" [%s %s]", d.Field, d.Code)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is an [Error] with the same code, so errors.Is(err,
// apierr.New(apierr.SlugTaken, "")) also finds a wrapped error.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// ScopeRequired returns the error for a caller who lacks a scope.
func ScopeRequired(scope, message string) *Error {
	return &Error{Code: InsufficientScope, RequiredScope: scope, Message: message}
}

// From returns the [Error] in err's chain. If there is none, it returns an INTERNAL that
// keeps err for the log. From(nil) returns nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: Internal, Message: "Something went wrong on our side.", Err: err}
}

// CodeOf returns the code that a caller would see for err, or "" if err is nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	return From(err).Code
}
