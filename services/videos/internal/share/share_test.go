package share

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/unlock"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// limiter is package ratelimit's limiter without Redis. It never recognises a viewer.
type limiter struct{ *ratelimit.Limiter }

func (limiter) First(context.Context, string, time.Duration) bool { return true }

func (limiter) Count(context.Context, string, string, time.Duration) (int64, bool) { return 1, false }

// The number of wrong guesses in an hour is limited, no matter how many networks are used and
// even with a cookie from an earlier visit. Correct passwords do not count.
func TestTheGuessesOfAnHourHaveABound(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := &Share{o: Options{Guard: limiter{ratelimit.New(nil, func() time.Time { return now })}}}
	wrong := func(ip, cookie string) bool {
		_, wait := s.guess(t.Context(), "vid", netip.MustParseAddr(ip), cookie)
		return wait == 0
	}
	right := func(ip, cookie string) bool {
		try, wait := s.guess(t.Context(), "vid", netip.MustParseAddr(ip), cookie)
		s.o.Guard.Refund(t.Context(), try)
		return wait == 0
	}
	allowed := 0
	for i := range 3000 { // forty networks in each of three regions guess repeatedly for most of an hour
		if wrong(fmt.Sprintf("10.%d.%d.1", i%3, i%40), "") {
			allowed++
		}
		now = now.Add(time.Second)
	}
	if allowed > unlock.SharedGuesses+3*40 {
		t.Errorf("the networks got %d guesses, want at most %d", allowed, unlock.SharedGuesses+3*40)
	}
	for range 10 {
		if !right("192.0.2.7", "") {
			t.Fatal("the correct password was rejected, want it accepted while others guess")
		}
	}
	for i := range 5000 { // each guess comes from a different neighbourhood and region
		if wrong(fmt.Sprintf("%d.%d.%d.1", 11+i%200, i/200, i%250), "") {
			allowed++
		}
	}
	if most := unlock.SharedGuesses + unlock.FirstGuesses; allowed > most {
		t.Errorf("got %d guesses without cookies within the hour, want at most %d", allowed, most)
	}
	if wrong("2001:db8::1", "") {
		t.Error("a guess was allowed with the reserve used up, want it rejected")
	}
	if !right("11.0.0.1", "viewer") {
		t.Error("the correct password from a returning viewer was rejected, want it accepted")
	}
	for i := range 500 {
		if wrong("11.0.0.1", fmt.Sprint("cookie", i%20)) {
			allowed++
		}
	}
	if most := unlock.SharedGuesses + unlock.FirstGuesses + returningGuesses; allowed > most || most != 720 {
		t.Errorf("got %d guesses within the hour, want at most %d, which must be the documented 720", allowed, most)
	}
	now = now.Add(time.Hour)
	if !right("198.51.100.1", "") {
		t.Error("the correct password was rejected an hour later, want the budgets restored")
	}
}

func TestMediaNamesLeadOnlyToRenditions(t *testing.T) {
	t.Parallel()
	s := &Share{}
	v := &video.Video{ID: "vid_1"}
	if got := s.mediaName(v, "videos/vid_1/7-2/720p.mp4"); got != "media~7-2~720p.mp4" {
		t.Errorf("mediaName returned %q, want media~7-2~720p.mp4", got)
	}
}

func TestFramers(t *testing.T) {
	t.Parallel()
	if got := framers(&video.Video{}); got != "*" {
		t.Errorf("framers without embed origins returned %q, want *", got)
	}
	if got := framers(&video.Video{EmbedOrigins: []string{"https://a.example", "https://b.example:8443"}}); got != "https://a.example https://b.example:8443" {
		t.Errorf("framers with two embed origins returned %q, want both", got)
	}
	for contact, want := range map[string]string{"": "", "a@b.example": "mailto:a@b.example", "mailto:a@b.example": "mailto:a@b.example", "https://x.example/report?to=a@b": "https://x.example/report?to=a@b"} {
		if got := reportLink(contact); got != want {
			t.Errorf("reportLink(%q) = %q, want %q", contact, got, want)
		}
	}
}

// storage is a bucket with an object of the same size under every name. It signs URLs of the
// usual length.
type storage struct{ size int }

func (storage) SignGet(_ context.Context, object string, _ time.Duration, _ objectstore.GetOptions) (string, time.Time, error) {
	return "https://storage.example/" + object + strings.Repeat("x", 600), time.Time{}, nil
}

func (b storage) Download(_ context.Context, _ string, _ int64, w io.Writer) (objectstore.Object, error) {
	_, err := w.Write(make([]byte, b.size))
	return objectstore.Object{}, err
}

// This test measures the heap, so it must not run in parallel with other tests.
func TestWhatIsRememberedIsBoundedInBytes(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s, err := New(Options{Guard: limiter{}, Bucket: storage{1 << 20}, Now: func() time.Time { return now }, WatchTTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New()
	for name, tt := range map[string]struct {
		n, most int
		ask     func(i int) error
	}{
		"captions of 1 MiB": {150, 40 << 20, func(i int) error {
			c := app.AcquireCtx(&fasthttp.RequestCtx{})
			defer app.ReleaseCtx(c)
			return errors.Join(s.send(c, "acc_a", strconv.Itoa(i), "text/vtt"), c.Response().CloseBodyStream())
		}},
		"signed URLs of 15 KiB": {5000, 12 << 20, func(i int) error {
			_, _, err := s.sign(t.Context(), &video.Video{}, video.Grant{}, strings.Repeat("y", 15<<10)+strconv.Itoa(i))
			return err
		}},
		"signed URLs of the usual length": {30_000, 12 << 20, func(i int) error {
			_, _, err := s.sign(t.Context(), &video.Video{}, video.Grant{}, "videos/vid_0123456789abcdef/1700000000000000-1/"+strconv.Itoa(i)+"p.mp4")
			return err
		}},
	} {
		before := procstat.Heap()
		for i := range tt.n {
			if err := tt.ask(i); err != nil {
				t.Fatal(err)
			}
		}
		if grown := procstat.Heap() - before; grown > int64(tt.most) {
			t.Errorf("%s: %d entries use %d MiB, want at most %d MiB", name, tt.n, grown>>20, tt.most>>20)
		}
	}
	runtime.KeepAlive(s)
}

func TestKeptIsNotGivenPastItsTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	k := newKept(10_000, func(int) int { return 0 })
	k.put("a", 1, now.Add(time.Minute))
	if v, ok := k.get("a", now.Add(time.Minute-1)); !ok || v != 1 {
		t.Errorf("get just before expiry = %d, %v; want 1, true", v, ok)
	}
	if _, ok := k.get("a", now.Add(time.Minute)); ok {
		t.Error("get at expiry returned an item, want none")
	}
	// Expired items are evicted to make room for new items.
	for i := range 1000 {
		k.put(strconv.Itoa(i), i, now)
	}
	k.put("new", 2, now.Add(time.Hour))
	if v, ok := k.get("new", now.Add(time.Minute)); !ok || v != 2 {
		t.Errorf("get of a new item = %d, %v; want 2, true", v, ok)
	}
}
