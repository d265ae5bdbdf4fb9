package objectstore

import (
	"context"
	"errors"
	"net"
	"time"

	"google.golang.org/api/googleapi"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/metrics"
)

// measured measures the total time of calls, including all attempts. sign is measured only if it is
// a remote call.
var measured = metrics.NewCalls("storage", []string{"stat", "delete", "list", "upload", "download", "session", "sign"},
	[]string{"unreachable", "timeout", "refused", "internal"})

// measure runs a call, which must return only this package's errors.
func measure(operation string, call func() error) error {
	began := time.Now()
	err := call()
	measured.Took(operation, time.Since(began))
	if err != nil {
		measured.Failed(reasonOf(err))
	}
	return err
}

// reasonOf returns the reason for a failed call, or "" if the caller cancelled the call or expects
// the error.
func reasonOf(err error) string {
	var api *googleapi.Error
	var network net.Error
	var socket *net.OpError
	switch {
	case errors.Is(err, errStalled):
		return "timeout"
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrStale), errors.Is(err, ErrEncoded), errors.Is(err, context.Canceled):
		return ""
	case errors.As(err, &api) && (api.Code == 401 || api.Code == 403 || api.Code == 429):
		return "refused"
	// The client retries refused connections until the deadline, and its error wraps both.
	case errors.As(err, &socket) && !socket.Timeout():
		return "unreachable"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.As(err, &network):
		return "unreachable"
	case apierr.CodeOf(err) == apierr.Unavailable:
		return "internal"
	}
	return ""
}
