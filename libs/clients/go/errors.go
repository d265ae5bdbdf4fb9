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

// APIError is an error response of the API. Branch on Code, or on its class with [IsNotFound] and
// its neighbours. Every other error of a call is a [ConnectionError], an [ArgumentError] or an
// [AnswerError]; longer work also has [BulkError], [UploadError] and [VideoError].
type APIError struct {
	Status        int           `json:"-"`
	Code          string        `json:"code"` // HTTP_502 and the like if a proxy answered
	Message       string        `json:"message"`
	RequestID     string        `json:"requestId"`
	DocURL        string        `json:"docUrl"` // a page about the code; may begin with / and be of the deployment
	Details       []Detail      `json:"details"`
	RequiredPlan  string        `json:"requiredPlan"`
	CurrentPlan   string        `json:"currentPlan"`
	RequiredScope string        `json:"requiredScope"`
	RequiredRole  string        `json:"requiredRole"`
	RestartAfter  string        `json:"restartAfter"` // with CURSOR_AHEAD: the After with which to read the feed on
	RetryAfter    time.Duration `json:"-"`            // what the service asks to wait; 0 if it does not say
	ETag          string        `json:"-"`            // after 412, the version that the record has now, for [IfMatch]
}

// Detail names one rule that a request broke.
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

// ConnectionError says that no attempt of a call got a whole answer: nothing listens, the connection
// broke, the time was over, or something other than JSON came where the API sends JSON. Whether the
// call took effect is unknown. It also stands for a 412 after such an attempt, which may have made the
// change itself. If the caller's ctx ended, errors.Is with ctx.Err() holds, for an [APIError] too.
type ConnectionError struct {
	Method, Path string
	Err          error // of the last attempt

	timeout bool
}

func (e *ConnectionError) Error() string { return fmt.Sprintf("%s %s: %v", e.Method, e.Path, e.Err) }

// Unwrap returns the error of the last attempt.
func (e *ConnectionError) Unwrap() error { return e.Err }

// Timeout reports whether the time for the last attempt, or for the call, was over.
func (e *ConnectionError) Timeout() bool { return e.timeout }

func lost(k *call, err error) *ConnectionError {
	var slow net.Error
	late := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &slow) && slow.Timeout()
	return &ConnectionError{Method: k.method, Path: k.path, Err: err, timeout: late}
}

// stopped is the error of a call that would be tried again if its ctx, or its wait, had not ended.
func stopped(err, why error) error {
	if errors.Is(err, why) {
		return err
	}
	return fmt.Errorf("%w; %w", err, why)
}

// ArgumentError says that a call cannot be sent: an id is empty or cannot be part of a path, or a
// body cannot be encoded. Nothing was sent.
type ArgumentError struct{ Message string }

func (e *ArgumentError) Error() string { return e.Message }

// AnswerError says that an answer is JSON, but not what the API documents. The call took effect.
type AnswerError struct {
	Method, Path string
	Err          error
}

func (e *AnswerError) Error() string {
	return fmt.Sprintf("%s %s: the answer is not what the API documents: %v", e.Method, e.Path, e.Err)
}

// Unwrap returns what the decoder says.
func (e *AnswerError) Unwrap() error { return e.Err }

// HasCode reports whether err is an error response of the API with one of the codes.
func HasCode(err error, codes ...string) bool {
	var e *APIError
	return errors.As(err, &e) && slices.Contains(codes, e.Code)
}

func hasStatus(err error, statuses ...int) bool {
	var e *APIError
	return errors.As(err, &e) && slices.Contains(statuses, e.Status)
}

// IsAuthentication reports whether the key is missing, wrong or at its end (401).
func IsAuthentication(err error) bool { return hasStatus(err, http.StatusUnauthorized) }

// IsPermission reports whether the plan, the key or the role does not allow the call (403).
func IsPermission(err error) bool { return hasStatus(err, http.StatusForbidden) }

// IsNotFound reports whether the record is not there, or belongs to another account (404).
func IsNotFound(err error) bool { return hasStatus(err, http.StatusNotFound) }

// IsGone reports whether what was asked for is over, such as a place in the feed of events (410).
func IsGone(err error) bool { return hasStatus(err, http.StatusGone) }

// IsValidation reports whether the request is wrong and must be changed (400, 413, 415 or 422). The
// error's Details name the fields.
func IsValidation(err error) bool {
	return hasStatus(
		err, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	)
}

// IsConflict reports whether the record, or another one, is in the way: a slug is taken, a record has
// changed since it was read (409 or 412).
func IsConflict(err error) bool {
	return hasStatus(err, http.StatusConflict, http.StatusPreconditionFailed)
}

// IsNotModified reports whether the record still has the ETag of [IfNoneMatch] (304).
func IsNotModified(err error) bool { return hasStatus(err, http.StatusNotModified) }

// IsRateLimited reports whether there were too many calls (429). RetryAfter says how long to wait.
func IsRateLimited(err error) bool { return hasStatus(err, http.StatusTooManyRequests) }

// IsServer reports whether the service failed (5xx). The same call may succeed later.
func IsServer(err error) bool {
	var e *APIError
	return errors.As(err, &e) && e.Status >= http.StatusInternalServerError
}

// IsConnection reports whether no whole answer came: see [ConnectionError].
func IsConnection(err error) bool {
	var e *ConnectionError
	return errors.As(err, &e)
}

// refusal reads an error response. One that is not of the API comes from a proxy.
func refusal(status int, header http.Header, body []byte) *APIError {
	var answer struct{ Error APIError }
	e := &answer.Error
	if err := json.Unmarshal(body, &answer); err != nil || e.Code == "" {
		*e = APIError{Code: "HTTP_" + strconv.Itoa(status), Message: http.StatusText(status)}
	}
	if to := header.Get("Location"); to != "" && status < http.StatusBadRequest {
		e.Message = "The deployment redirects to " + to + ": use the address there as the base URL."
	}
	e.Status, e.RetryAfter, e.ETag = status, retryAfter(header), header.Get("ETag")
	return e
}

// retryAfter reads the seconds of Retry-After; a date there is ignored.
func retryAfter(h http.Header) time.Duration {
	// Of a number that is too large, ParseInt returns the largest one.
	s, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) || s < 0 {
		return 0
	}
	return time.Duration(min(s, int64(math.MaxInt64/time.Second))) * time.Second
}
