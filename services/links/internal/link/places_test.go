package link_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/links/internal/link"
)

func limitedLink(limit, clicks int64) *link.Link {
	l := &link.Link{Slug: "s", Clicks: clicks}
	l.SetRoute(link.Routing{MaxClicks: limit})
	return l
}

func TestPlacesAreGivenUntilNoneIsLeft(t *testing.T) {
	t.Parallel()
	p := link.NewPlaces(nil, limitedLink(5, 0))
	for i, want := range []int64{3, 2, 0} {
		if got, _ := p.Take(link.Ask{ID: fmt.Sprint(i), Want: 3}); got != want {
			t.Errorf("ask %d got %d slots, want %d", i, got, want)
		}
	}
	if !p.Full() || p.Used != 5 {
		t.Errorf("slots = %+v, want 5 used and full", p)
	}
}

func TestAnAskThatComesTwiceGetsItsPlacesOnce(t *testing.T) {
	t.Parallel()
	p := link.NewPlaces(nil, limitedLink(5, 0))
	p.Take(link.Ask{ID: "other", Want: 1})
	for range 2 {
		if got, _ := p.Take(link.Ask{ID: "a", Want: 2, Back: 1}); got != 2 {
			t.Errorf("got %d slots, want 2", got)
		}
	}
	if p.Used != 2 {
		t.Errorf("got %d used slots, want 2", p.Used)
	}
}

func TestThePlacesOfAnUnknownOutcomeAreGivenToTheNext(t *testing.T) {
	t.Parallel()
	p := link.NewPlaces(nil, limitedLink(5, 0))
	p.Take(link.Ask{ID: "lost", Want: 5})
	got, changed := p.Take(link.Ask{ID: "b", Want: 3, Unsure: []string{"lost", "never arrived"}})
	if got != 3 || !changed || p.Used != 3 || p.Full() {
		t.Errorf("Take = %d slots, then %+v; want 3 new slots and 3 used", got, p)
	}
	if got, _ := p.Take(link.Ask{ID: "c", Want: 3, Unsure: []string{"lost"}}); got != 2 {
		t.Errorf("Take = %d slots, want 2, because lost slots are returned only once", got)
	}
}

// Replicas ask in random order, and some outcomes are unknown for a while. The number of redirects
// must never exceed the limit. Once all outcomes are known, the number of redirects equals the
// limit, unless an ask that returned slots was lost in transit.
func TestNoOrderOfAsksPassesTheLimit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit := 1 + r.Int64N(60)
		p := link.NewPlaces(nil, limitedLink(limit, 0))
		var led int64
		unsure := make([][]string, 3)
		back := make([]int64, 3)
		ask := func(i, n int, lossy bool) {
			who := r.IntN(3)
			if !lossy {
				who = n % 3
			}
			a := link.Ask{ID: fmt.Sprint(i), Want: r.Int64N(6), Back: back[who], Unsure: unsure[who]}
			carriedOut, known := !lossy || r.IntN(4) > 0, !lossy || r.IntN(3) > 0
			var got int64
			if carriedOut {
				got, _ = p.Take(a)
			}
			if !known || !carriedOut {
				unsure[who] = append(unsure[who], a.ID)
				back[who] = 0
				return
			}
			unsure[who], back[who], led = nil, 0, led+got
			if seed%2 == 1 && got > 0 && r.IntN(8) == 0 {
				led, back[who] = led-1, 1
			}
		}
		for i := range 60 {
			ask(i, 0, true)
			if led > limit || p.Used > limit {
				t.Fatalf("seed %d: %d redirects, want at most %d, %+v", seed, led, limit, p)
			}
		}
		for i := range 200 {
			ask(1000+i, i, false)
		}
		if p.Used > limit || led > limit || seed%2 == 0 && led != limit {
			t.Fatalf("seed %d: %d redirects at the end, want %d, or fewer if slots were returned; %+v", seed, led, limit, p)
		}
	}
}

func TestASettledLinkHasUsedAllItsClicks(t *testing.T) {
	t.Parallel()
	before := limitedLink(0, 4)
	p := link.NewPlaces(before, limitedLink(10, 4))
	if p.Settled || p.Used != 4 {
		t.Errorf("slots before the link is settled = %+v, want 4 used", p)
	}
	p.Settle(9)
	if got, _ := p.Take(link.Ask{ID: "a", Want: 5}); got != 1 {
		t.Errorf("got %d slots, want 1", got)
	}
}

func TestALinkThatIsUsedUpIsExhausted(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]*link.Link{
		"by clicks": limitedLink(3, 3), "by slots": {UsedUp: true, Routing: &link.Routing{MaxClicks: 3}},
	} {
		if got := l.Status(time.Now()); got != link.UsedUp {
			t.Errorf("%s: Status = %s, want %s", name, got, link.UsedUp)
		}
	}
}
