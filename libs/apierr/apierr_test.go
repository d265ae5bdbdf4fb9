package apierr_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/linkreel/linkreel/libs/apierr"
)

func TestFrom(t *testing.T) {
	t.Parallel()
	taken := apierr.New(apierr.SlugTaken, "taken")
	tests := []struct {
		name   string
		err    error
		want   apierr.Code
		status int
	}{
		{"a wrapped error with a code", fmt.Errorf("create: %w", taken), apierr.SlugTaken, 409},
		{"an error without a code", io.ErrUnexpectedEOF, apierr.Internal, 500},
		{"no error", nil, "", 500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := apierr.CodeOf(tt.err); got != tt.want {
				t.Errorf("CodeOf(%v) = %q, want %q", tt.err, got, tt.want)
			}
			if got := tt.want.Status(); got != tt.status {
				t.Errorf("%q.Status() = %d, want %d", tt.want, got, tt.status)
			}
		})
	}
	if !errors.Is(fmt.Errorf("x: %w", taken), apierr.New(apierr.SlugTaken, "")) {
		t.Error("errors.Is = false for two errors with the same code, want true")
	}
	if !errors.Is(apierr.From(io.EOF), io.EOF) {
		t.Error("errors.Is = false for the cause after From, want true")
	}
	if got := apierr.From(io.EOF).Message; got == io.EOF.Error() {
		t.Errorf("message for the caller = %q, want it without the cause's text", got)
	}
}

func TestEveryCodeHasAnErrorStatus(t *testing.T) {
	t.Parallel()
	for _, c := range apierr.Codes() {
		if s := c.Status(); s < 400 || s > 599 {
			t.Errorf("%s has status %d, want 400 to 599", c, s)
		}
	}
}
