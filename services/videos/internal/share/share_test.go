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

// limiter is ratelimit's limiter, without Redis. It never recognises a viewer.
type limiter struct{ *ratelimit.Limiter }

func (limiter) First(context.Context, string, time.Duration) bool { return true }

func (limiter) Count(context.Context, string, string, time.Duration) (int64, bool) { return 1, false }

// The number of guesses in an hour is bounded, however many networks guess, and even
// with a cookie of an earlier visit. A right guess does not count.
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
	for i := range 3000 { // forty networks of three regions, again and again for most of an hour
		if wrong(fmt.Sprintf("10.%d.%d.1", i%3, i%40), "") {
			allowed++
		}
		now = now.Add(time.Second)
	}
	if allowed > unlock.SharedGuesses+3*40 {
		t.Errorf("forty networks got %d guesses", allowed)
	}
	for range 10 {
		if !right("192.0.2.7", "") {
			t.Fatal("a viewer who knows the password is locked out")
		}
	}
	for i := range 5000 { // each time another neighbourhood and region
		if wrong(fmt.Sprintf("%d.%d.%d.1", 11+i%200, i/200, i%250), "") {
			allowed++
		}
	}
	if most := unlock.SharedGuesses + unlock.FirstGuesses; allowed > most {
		t.Errorf("%d guesses within the hour, want at most %d", allowed, most)
	}
	if wrong("2001:db8::1", "") {
		t.Error("the reserve has no end")
	}
	if !right("11.0.0.1", "viewer") {
		t.Error("an earlier viewer is locked out")
	}
	for i := range 500 {
		if wrong("11.0.0.1", fmt.Sprint("cookie", i%20)) {
			allowed++
		}
	}
	if most := unlock.SharedGuesses + unlock.FirstGuesses + returningGuesses; allowed > most || most != 720 {
		t.Errorf("%d guesses within the hour, want at most %d, which is 720 as the docs say", allowed, most)
	}
	now = now.Add(time.Hour)
	if !right("198.51.100.1", "") {
		t.Error("an hour later the budgets are still spent")
	}
}

func TestMediaNamesLeadOnlyToRenditions(t *testing.T) {
	t.Parallel()
	s := &Share{}
	v := &video.Video{ID: "vid_1"}
	if got := s.mediaName(v, "videos/vid_1/7-2/720p.mp4"); got != "media~7-2~720p.mp4" {
		t.Errorf("mediaName = %q", got)
	}
}

func TestFramers(t *testing.T) {
	t.Parallel()
	if got := framers(&video.Video{}); got != "*" {
		t.Errorf("nobody named: %q", got)
	}
	if got := framers(&video.Video{EmbedOrigins: []string{"https://a.example", "https://b.example:8443"}}); got != "https://a.example https://b.example:8443" {
		t.Errorf("two named: %q", got)
	}
	for contact, want := range map[string]string{"": "", "a@b.example": "mailto:a@b.example", "mailto:a@b.example": "mailto:a@b.example", "https://x.example/report?to=a@b": "https://x.example/report?to=a@b"} {
		if got := reportLink(contact); got != want {
			t.Errorf("reportLink(%q) = %q", contact, got)
		}
	}
}

// storage has an object under every name, all of the same size, and signs addresses of
// the usual length.
type storage struct{ size int }

func (storage) SignGet(_ context.Context, object string, _ time.Duration, _ objectstore.GetOptions) (string, time.Time, error) {
	return "https://storage.example/" + object + strings.Repeat("x", 600), time.Time{}, nil
}

func (b storage) Download(_ context.Context, _ string, _ int64, w io.Writer) (objectstore.Object, error) {
	_, err := w.Write(make([]byte, b.size))
	return objectstore.Object{}, err
}

// It measures the heap, so it must not run beside other tests.
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
		"addresses of 15 KiB": {5000, 12 << 20, func(i int) error {
			_, _, err := s.sign(t.Context(), &video.Video{}, video.Grant{}, strings.Repeat("y", 15<<10)+strconv.Itoa(i))
			return err
		}},
		"addresses of the usual length": {30_000, 12 << 20, func(i int) error {
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
			t.Errorf("%s: %d of them take %d MiB, want at most %d", name, tt.n, grown>>20, tt.most>>20)
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
		t.Errorf("just before its end: %d, %v; want 1, true", v, ok)
	}
	if _, ok := k.get("a", now.Add(time.Minute)); ok {
		t.Error("given at its end")
	}
	// Expired items do not keep new ones out.
	for i := range 1000 {
		k.put(strconv.Itoa(i), i, now)
	}
	k.put("new", 2, now.Add(time.Hour))
	if v, ok := k.get("new", now.Add(time.Minute)); !ok || v != 2 {
		t.Errorf("a new one is %d, %v; want 2, true", v, ok)
	}
}
