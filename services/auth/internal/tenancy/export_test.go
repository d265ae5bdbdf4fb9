package tenancy

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/ratelimit"
)

// Eight accounts hold all places with exports that nobody reads. Another account
// finds one as soon as the first of them has had its time.
func TestSlowExportsGiveTheirPlacesToOtherAccounts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	x := exports{slots: ratelimit.NewSlots(maxExportsOfAccount, maxExports), now: func() time.Time { return now }}
	var running []context.Context
	for i := range maxExports {
		ctx, end, err := x.begin(t.Context(), fmt.Sprintf("acc_%d", i/maxExportsOfAccount))
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(ctx, end) // as an export does whose writes fail
		running = append(running, ctx)
		now = now.Add(time.Second)
	}
	busy := func(account string) {
		t.Helper()
		_, _, err := x.begin(t.Context(), account)
		var refused *apierr.Error
		if !errors.As(err, &refused) || refused.Code != apierr.RateLimited || refused.RetryAfter != exportLater {
			t.Errorf("an export without a place: %v", err)
		}
	}
	busy("acc_new")
	if running[0].Err() != nil {
		t.Error("an export was ended before its time")
	}
	now = now.Add(undisturbed)
	busy("acc_0")
	if running[0].Err() != nil {
		t.Error("an account with its share ended an export")
	}
	busy("acc_new")
	select {
	case <-running[0].Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the longest running export goes on")
	}
	if cause := context.Cause(running[0]); !errors.Is(cause, errPlaceTaken) {
		t.Errorf("the longest running export ended with %v", cause)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, end, err := x.begin(t.Context(), "acc_new"); err == nil {
			end()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the place that was made is never free")
		}
	}
	if running[1].Err() != nil && running[2].Err() != nil {
		t.Error("more than what was needed was ended")
	}
}
