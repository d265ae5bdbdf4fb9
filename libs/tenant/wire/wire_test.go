package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/peer/peertest"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/wire"
)

// books is a Holder that records its calls.
type books struct {
	told   []string
	erased bool
	lines  int
	text   string // in each line
	breaks bool
}

func (b *books) SetState(_ context.Context, id string, s tenant.Standing) error {
	b.told = append(b.told, fmt.Sprint(id, " ", s.State, " ", s.Version))
	return nil
}
func (b *books) Erased(context.Context, string) (bool, error) { return b.erased, nil }

func (b *books) Export(_ context.Context, id string, w io.Writer) error {
	if id == "acc_none" {
		return &apierr.Error{Code: apierr.Unavailable, RetryAfter: 7 * time.Second, Message: "Busy."}
	}
	for i := range b.lines {
		if _, err := fmt.Fprintf(w, "{\"type\":\"link\",\"data\":{\"n\":%d,\"text\":%q}}\n", i, b.text); err != nil {
			return err
		}
	}
	if b.breaks {
		return errors.New("database went away")
	}
	return nil
}

func (b *books) TakeDown(_ context.Context, o tenant.Order) (tenant.Takedown, error) {
	if o.Target.ID == "lnk_none" {
		return tenant.Takedown{}, apierr.New(apierr.LinkNotFound, "There is no link with this id.")
	}
	return tenant.Takedown{ID: o.ID, Kind: tenant.KindLink, RecordID: o.Target.ID, AccountID: "acc_1", URL: "https://go.example/x", Reason: o.Reason, At: o.At}, nil
}

func (b *books) Lift(_ context.Context, t tenant.Takedown) error {
	b.told = append(b.told, "lift "+t.ID)
	return nil
}

func serve(t *testing.T, b *books) string {
	t.Helper()
	api := httpapi.New(httpapi.Options{Name: "test"})
	wire.Routes(api, "secret", b)
	return peertest.Serve(t, api.Handler())
}

func client(t *testing.T, url, token string) *wire.Client {
	c := wire.NewClient(url, token)
	t.Cleanup(c.Close)
	return c
}

func TestClientReachesTheHolder(t *testing.T) {
	t.Parallel()
	b := &books{erased: true}
	c := client(t, serve(t, b), "secret")
	ctx := t.Context()
	if err := c.SetState(ctx, "acc_1", tenant.Standing{State: tenant.Suspended, Version: 7}); err != nil {
		t.Fatal(err)
	}
	if done, err := c.Erased(ctx, "acc_1"); err != nil || !done {
		t.Errorf("Erased = %v, %v, want true", done, err)
	}
	at := time.UnixMilli(1_700_000_000_000).UTC()
	down, err := c.TakeDown(ctx, tenant.Order{ID: "tkd_1", Target: tenant.Target{ID: "lnk_1"}, Reason: "phishing", At: at})
	want := tenant.Takedown{ID: "tkd_1", Kind: tenant.KindLink, RecordID: "lnk_1", AccountID: "acc_1", URL: "https://go.example/x", Reason: "phishing", At: at}
	if d := cmp.Diff(want, down); err != nil || d != "" {
		t.Errorf("TakeDown: %v (-want +got):\n%s", err, d)
	}
	if err := c.Lift(ctx, down); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"acc_1 suspended 7", "lift tkd_1"}, b.told); d != "" {
		t.Errorf("calls to the holder (-want +got):\n%s", d)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	url := serve(t, &books{})
	good, order := client(t, url, "secret"), tenant.Order{ID: "tkd_1", Target: tenant.Target{ID: "lnk_none"}}
	if _, err := good.TakeDown(t.Context(), order); apierr.CodeOf(err) != apierr.LinkNotFound {
		t.Errorf("TakeDown for a missing link: got %v, want LINK_NOT_FOUND", err)
	}
	for name, err := range map[string]error{
		"unknown state":   good.SetState(t.Context(), "acc_1", tenant.Standing{State: "asleep", Version: 1}),
		"missing version": good.SetState(t.Context(), "acc_1", tenant.Standing{State: tenant.Active}),
		"wrong token":     client(t, url, "other").SetState(t.Context(), "acc_1", tenant.Standing{State: tenant.Active, Version: 1}),
		"empty token":     client(t, url, "").SetState(t.Context(), "acc_1", tenant.Standing{State: tenant.Active, Version: 1}),
		"missing route":   client(t, url+"/elsewhere", "secret").SetState(t.Context(), "acc_1", tenant.Standing{State: tenant.Active, Version: 1}),
		"closed port":     client(t, "http://127.0.0.1:1", "secret").SetState(t.Context(), "acc_1", tenant.Standing{State: tenant.Active, Version: 1}),
		"export that fails immediately": func() error {
			return good.Export(t.Context(), "acc_none", io.Discard)
		}(),
	} {
		if apierr.CodeOf(err) != apierr.Unavailable {
			t.Errorf("%s: got %v, want UNAVAILABLE, which auth retries", name, err)
		}
	}
	var busy *apierr.Error
	if err := good.Export(t.Context(), "acc_none", io.Discard); !errors.As(err, &busy) || busy.RetryAfter != 7*time.Second {
		t.Errorf("Export from a busy holder: got %v, want Retry-After 7", err)
	}
}

func TestExportArrivesWholeOrFails(t *testing.T) {
	t.Parallel()
	const lines = 200_000
	for _, breaks := range []bool{false, true} {
		var got bytes.Buffer
		err := client(t, serve(t, &books{lines: lines, breaks: breaks}), "secret").Export(t.Context(), "acc_1", &got)
		if (err != nil) != breaks {
			t.Errorf("Export with breaks = %v: got %v, want an error only if it breaks", breaks, err)
		}
		if n := strings.Count(got.String(), "\n"); !breaks && n != lines {
			t.Errorf("export has %d lines, want %d", n, lines)
		}
	}
}

// The test exports many records (a million with LINKREEL_FULL) and checks memory use from time to
// time.
func TestAnExportIsNeverHeldWhole(t *testing.T) { // not parallel because all tests share the memory
	lines := 300_000
	if os.Getenv("LINKREEL_FULL") != "" {
		lines = 1_000_000
	}
	sink := &meter{}
	url := serve(t, &books{lines: lines, text: strings.Repeat("x", 400)})
	if err := client(t, url, "secret").Export(t.Context(), "acc_1", sink); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d records, %d MB; the heap was at most %d MB", sink.lines, sink.bytes>>20, sink.heap>>20)
	if sink.lines != lines || sink.heap > 48<<20 {
		t.Errorf("exported %d records of %d with a heap of %d MB, want all records and at most 48 MB", sink.lines, lines, sink.heap>>20)
	}
}

// meter counts the written lines and discards them.
type meter struct {
	lines, bytes int
	next         int
	heap         uint64
}

func (m *meter) Write(p []byte) (int, error) {
	m.lines += bytes.Count(p, []byte("\n"))
	if m.bytes += len(p); m.bytes >= m.next {
		m.next = m.bytes + 4<<20
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		m.heap = max(m.heap, stats.HeapAlloc)
	}
	return len(p), nil
}

func TestAnEmptyExportIsEmpty(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	if err := client(t, serve(t, &books{}), "secret").Export(t.Context(), "acc_1", &got); err != nil || got.Len() != 0 {
		t.Errorf("Export = %q, %v, want an empty export", got.String(), err)
	}
}
