package tenancy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/turns"
	"github.com/linkreel/linkreel/services/auth/internal/account"
)

// Eight accounts take up every slot with exports that nobody reads. Another account gets a slot
// once the first of these exports has run long enough.
func TestSlowExportsGiveTheirPlacesToOtherAccounts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	x := exports{slots: turns.NewSlots(maxExportsOfAccount, maxExports), now: func() time.Time { return now }}
	var running []context.Context
	for i := range maxExports {
		ctx, end, err := x.begin(t.Context(), fmt.Sprintf("acc_%d", i/maxExportsOfAccount))
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(ctx, end) // end the export as if its writes had failed
		running = append(running, ctx)
		now = now.Add(time.Second)
	}
	busy := func(account string) {
		t.Helper()
		_, _, err := x.begin(t.Context(), account)
		var refused *apierr.Error
		if !errors.As(err, &refused) || refused.Code != apierr.RateLimited || refused.RetryAfter != exportLater {
			t.Errorf("begin without a free slot returned %v, want RATE_LIMITED with RetryAfter = exportLater", err)
		}
	}
	busy("acc_new")
	if running[0].Err() != nil {
		t.Error("an export was ended before it had run long enough, want it running")
	}
	now = now.Add(undisturbed)
	busy("acc_0")
	if running[0].Err() != nil {
		t.Error("an account that is already running an export ended another account's export, want it running")
	}
	busy("acc_new")
	select {
	case <-running[0].Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the longest-running export is still running after 10s, want it ended")
	}
	if cause := context.Cause(running[0]); !errors.Is(cause, errPlaceTaken) {
		t.Errorf("the longest-running export ended with %v, want %v", cause, errPlaceTaken)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, end, err := x.begin(t.Context(), "acc_new"); err == nil {
			end()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the ended export's slot is still taken after 10s, want it free")
		}
	}
	if running[1].Err() != nil && running[2].Err() != nil {
		t.Error("more than one export was ended, want only the longest-running one ended")
	}
}

// links has fewer slots than auth. Eight accounts take up all of its slots with exports that nobody
// reads, while auth still has eight free slots.
func TestAnExportThatLinksRefusesGetsThePlaceOfOneThatRunsForLong(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	links := &busyHolder{slots: turns.NewSlots(1, 8), begun: make(chan context.Context)}
	s := NewService(noted{}, []Holder{{Name: "links", Holder: links}}, func() time.Time { return now })
	ended := make(chan error, maxExports)
	export := func(account string) { ended <- s.Export(t.Context(), account, nil, io.Discard) }
	var running []context.Context
	for i := range 8 {
		go export(fmt.Sprintf("acc_%d", i))
		running = append(running, <-links.begun)
		now = now.Add(time.Second)
	}
	refused := func(account string) {
		t.Helper()
		export(account)
		if err := <-ended; apierr.CodeOf(err) != apierr.RateLimited || placeTaken(err) {
			t.Errorf("an export without a free slot at links returned %v, want RATE_LIMITED", err)
		}
	}
	refused("acc_new")
	if running[0].Err() != nil {
		t.Error("an export was ended before it had run long enough, want it running")
	}
	now = now.Add(undisturbed)
	refused("acc_1") // this account is already running an export
	if running[0].Err() != nil {
		t.Error("an account that is already running an export ended another account's export, want it running")
	}
	// auth has already begun to stream the export when links rejects it. This ends the
	// longest-running export.
	export("acc_new")
	first, second := <-ended, error(nil)
	select {
	case second = <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the longest-running export is still running after 10s, want it ended")
	}
	if placeTaken(first) == placeTaken(second) || context.Cause(running[0]) == nil {
		t.Errorf("the exports ended with %v and %v, and the longest-running one has cause %v; want exactly one to end with errPlaceTaken", first, second, context.Cause(running[0]))
	}
	for i, ctx := range running[1:] {
		if ctx.Err() != nil {
			t.Errorf("export %d was ended too, want it running", i+1)
		}
	}
	go export("acc_new") // links releases the slot before the ended export returns
	select {
	case <-links.begun:
	case err := <-ended:
		t.Errorf("the second attempt at the new export ended with %v, want it running", err)
	}
}

// placeTaken distinguishes errPlaceTaken from other errors with the same code.
func placeTaken(err error) bool {
	var refused *apierr.Error
	return errors.As(err, &refused) && refused == errPlaceTaken
}

// busyHolder is a service with only a few slots for exports. Nobody reads its exports.
type busyHolder struct {
	tenant.Holder
	slots *turns.Slots
	begun chan context.Context
}

func (h *busyHolder) Export(ctx context.Context, account string, _ io.Writer) error {
	release, ok := h.slots.Take(account)
	if !ok {
		return &apierr.Error{Code: apierr.RateLimited, RetryAfter: exportLater}
	}
	defer release()
	h.begun <- ctx
	<-ctx.Done()
	return ctx.Err()
}

// noted is a store that accepts an export's event.
type noted struct{ Store }

func (noted) Atomically(context.Context, string, func(account.Tx) error) error { return nil }
