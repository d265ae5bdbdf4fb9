package share

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// limiter is ratelimit's, without Redis; nobody is seen twice.
type limiter struct{ *ratelimit.Limiter }

func (limiter) First(context.Context, string, time.Duration) bool { return true }

func TestGuessesOfManyNetworks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	s := &Share{o: Options{Guard: limiter{ratelimit.New(nil, func() time.Time { return now })}}}
	wrong := func(network string) bool {
		_, wait := s.guess(t.Context(), "vid", network)
		return wait == 0
	}
	right := func(network string) bool {
		tries, wait := s.guess(t.Context(), "vid", network)
		for _, try := range tries {
			s.o.Guard.Refund(t.Context(), try)
		}
		return wait == 0
	}
	attackers := func(i int) string { return "10.0." + string(rune('a'+i/26)) + "." + string(rune('a'+i%26)) }
	allowed := 0
	for i := range 2000 { // the same forty networks, again and again for an hour
		if wrong(attackers(i % 40)) {
			allowed++
		}
		now = now.Add(1700 * time.Millisecond)
	}
	if allowed > guessesPerVideo+40+5 {
		t.Errorf("%d guesses within the hour", allowed)
	}
	for range 10 {
		if !right("192.0.2.7") {
			t.Fatal("a viewer who knows the password is locked out")
		}
	}
	allowed = 0
	for i := range 2000 { // each time another network
		if wrong("2001:db8:" + strings.Repeat("1", i%5) + attackers(i)) {
			allowed++
		}
	}
	if allowed > firstGuesses+guessesPerVideo {
		t.Errorf("%d first guesses within the hour", allowed)
	}
	if wrong("198.51.100.1") {
		t.Error("the reserve has no end")
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

func TestTTLCache_does_bounded_work_when_full(t *testing.T) {
	t.Parallel()
	const most = 1000
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	k := newTTLCache[int](most)
	for i := range most {
		k.put(strconv.Itoa(i), i, now.Add(time.Minute), now)
	}
	now = now.Add(time.Hour) // all of them have expired
	k.put("new", 1, now.Add(time.Minute), now)
	if n := len(k.items); n < most-ttlLooks || n > most {
		t.Errorf("%d of %d entries are left after one put, want at most %d dropped", n, most, ttlLooks)
	}
	for i := range 10 * most {
		k.put(strconv.Itoa(most+i), i, now.Add(time.Minute), now)
	}
	if n := len(k.items); n > most {
		t.Errorf("%d entries, want at most %d", n, most)
	}
	if _, ok := k.get(strconv.Itoa(11*most-1), now); !ok {
		t.Error("what was put last is not there")
	}
}
