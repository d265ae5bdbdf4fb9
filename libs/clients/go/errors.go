package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// APIError is an error response from the API. Branch on Code, or on its class with [IsNotFound] and
// similar functions. Any other error from a call is a [ConnectionError], an [ArgumentError] or an
// [AnswerError]. Methods for longer tasks also return [BulkError], [UploadError] and [VideoError].
type APIError struct {
	Status        int           `json:"-"`
	Code          string        `json:"code"` // such as LINK_NOT_FOUND, or HTTP_502 if a proxy answered
	Message       string        `json:"message"`
	RequestID     string        `json:"requestId"`
	DocURL        string        `json:"docUrl"` // the page about the code; a URL, or a path on the deployment
	Details       []Detail      `json:"details"`
	RequiredPlan  string        `json:"requiredPlan"`
	CurrentPlan   string        `json:"currentPlan"`
	RequiredScope string        `json:"requiredScope"`
	RequiredRole  string        `json:"requiredRole"`
	RestartAfter  string        `json:"restartAfter"` // with CURSOR_AHEAD: the After to resume with
	RetryAfter    time.Duration `json:"-"`            // how long the service asks the client to wait, or 0
	ETag          string        `json:"-"`            // after a 412, the current version of the record, for [IfMatch]
}

// Detail names one rule that a request violated.
type Detail struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Min     *int64 `json:"min"`
	Max     *int64 `json:"max"`
}

func (e *APIError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", e.Message, e.Code)
	for _, d := range e.Details {
		fmt.Fprintf(&b, "; %s: %s", d.Field, d.Message)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " [request %s]", e.RequestID)
	}
	return b.String()
}

// ConnectionError is returned if no attempt at a call got a complete response: the connection was
// refused or broke, the attempt timed out, or the response was not JSON where the API sends JSON.
// The call may have taken effect. It is also returned for a 412 that follows such an attempt, since
// that attempt may have made the change. If the caller's ctx is done, errors.Is(err, ctx.Err()) is
// true, even for an [APIError].
type ConnectionError struct {
	Method, Path string
	Err          error // the error from the last attempt

	timeout bool
}

func (e *ConnectionError) Error() string { return fmt.Sprintf("%s %s: %v", e.Method, e.Path, e.Err) }

// Unwrap returns the error from the last attempt.
func (e *ConnectionError) Unwrap() error { return e.Err }

// Timeout reports whether the last attempt, or the whole call, timed out.
func (e *ConnectionError) Timeout() bool { return e.timeout }

func lost(k *call, err error) *ConnectionError {
	var slow net.Error
	late := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout()
	return &ConnectionError{Method: k.method, Path: k.path, Err: err, timeout: late}
}

// stopped returns the error for a call that is not retried because its ctx is done or the wait
// would be too long.
func stopped(err, why error) error {
	if errors.Is(err, why) {
		return err
	}
	return fmt.Errorf("%w; %w", err, why)
}

// ArgumentError is returned for a call that cannot be sent because an id is empty or cannot be part
// of a path, or because the body cannot be encoded. Nothing was sent.
type ArgumentError struct{ Message string }

func (e *ArgumentError) Error() string { return e.Message }

// AnswerError is returned if a response is JSON but does not match the API's documentation. The
// call has taken effect.
type AnswerError struct {
	Method, Path string
	Err          error
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("%s %s: the response does not match the API documentation: %v", e.Method, e.Path, e.Err)
}

// Unwrap returns the error from the decoder.
func (e *AnswerError) Unwrap() error { return e.Err }

// HasCode reports whether err is an error response from the API with one of the codes.
func HasCode(err error, codes ...string) bool {
	var e *APIError
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

func hasStatus(err error, statuses ...int) bool {
	var e *APIError
	return errors.As(err, &e) && slices.Contains(statuses, e.Status)
}

// IsAuthentication reports whether the key is missing, invalid, expired or revoked (401).
func IsAuthentication(err error) bool { return hasStatus(err, http.StatusUnauthorized) }

// IsPermission reports whether the account's plan or the caller's key or role does not allow the
// call (403).
func IsPermission(err error) bool { return hasStatus(err, http.StatusForbidden) }

// IsNotFound reports whether the record does not exist, or belongs to another account (404).
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsGone reports whether the requested resource no longer exists, such as a position in the event
// feed (410).
func IsGone(err error) bool { return hasStatus(err, http.StatusGone) }

// IsValidation reports whether the request is invalid and must be changed (400, 413, 415 or 422).
// The error's Details name the fields.
func IsValidation(err error) bool {
	return hasStatus(
		err, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	)
}

// IsConflict reports whether the call conflicts with the state of a record: a slug is taken, or the
// record has changed since it was read (409 or 412).
func IsConflict(err error) bool {
	return hasStatus(err, http.StatusConflict, http.StatusPreconditionFailed)
}

// IsNotModified reports whether the record still has the ETag passed to [IfNoneMatch] (304).
func IsNotModified(err error) bool { return hasStatus(err, http.StatusNotModified) }

// IsRateLimited reports whether there were too many calls (429). Wait for RetryAfter.
func IsRateLimited(err error) bool { return hasStatus(err, http.StatusTooManyRequests) }

// IsServer reports whether the service failed (5xx). The same call may succeed later.
func IsServer(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.Status >= http.StatusInternalServerError
}

// IsConnection reports whether no complete response arrived: see [ConnectionError].
func IsConnection(err error) bool {
	var e *ConnectionError
	return errors.As(err, &e)
}

// refusal decodes an error response. If the body is not an API error, the response comes from a
// proxy.
func refusal(status int, header http.Header, body []byte) *APIError {
	var answer struct{ Error APIError }
	e := &answer.Error
	if err := json.Unmarshal(body, &answer); err != nil || e.Code == "" {
		*e = APIError{Code: "HTTP_" + strconv.Itoa(status), Message: http.StatusText(status)}
	}
	if to := header.Get("Location"); to != "" && status < http.StatusBadRequest {
		e.Message = "The deployment redirects to " + to + ": use that address as the base URL."
	}
	e.Status, e.RetryAfter, e.ETag = status, retryAfter(header), header.Get("ETag")
	return e
}

// retryAfter parses a Retry-After in seconds. It ignores a date.
func retryAfter(h http.Header) time.Duration {
	// If the number is out of range, ParseInt returns the maximum value.
	s, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || s < 0 {
		return 0
	}
	return time.Duration(min(s, int64(math.MaxInt64/time.Second))) * time.Second
}
