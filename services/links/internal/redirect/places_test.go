package redirect

import (
	"errors"
	"slices"
	"testing"

	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/links/internal/places"
)

// gate records its calls and returns err.
type gate struct {
	asked []string
	err   error
}

func (g *gate) Take(_, linkID, slugKey string) error {
	g.asked = append(g.asked, "take "+linkID+" "+slugKey)
	return g.err
}

func (g *gate) Back(_, linkID, slugKey string) {
	g.asked = append(g.asked, "back "+linkID+" "+slugKey)
}

func TestAVisitToALinkWithALimitTakesOnePlace(t *testing.T) {
	t.Parallel()
	limited := link.Target{LinkID: "l", Slug: "a", Location: "https://x.example/", Routing: &link.Routing{MaxClicks: 3}}
	usedUp := limited
	usedUp.UsedUp = true
	plain := limited
	plain.Routing = nil
	for name, v := range map[string]struct {
		target link.Target
		again  int
		err    error
		status int
		asked  []string
		clicks int
	}{
		"a plain link":            {target: plain, status: 302, clicks: 1},
		"a link with places":      {target: limited, status: 302, asked: []string{"take l |a"}, clicks: 1},
		"an overtaken answer":     {target: limited, again: 3, status: 302, asked: []string{"take l |a"}, clicks: 1},
		"one that is never sent":  {target: limited, again: 99, status: 503, asked: []string{"take l |a", "back l |a"}},
		"a place that is unknown": {target: limited, err: errors.New("down"), status: 503, asked: []string{"take l |a"}},
		"a link that changes": {
			target: limited, err: places.ErrChanged, status: 503, asked: slices.Repeat([]string{"take l |a"}, tries),
		},
		"a link that is used up": {target: usedUp, status: 410},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, g := &yes{again: v.again}, &gate{err: v.err}
			h, s := newHandler(y)
			h.opt.Places = g
			s.links["|a"] = v.target
			res := ask(h, "/a", "lrl.example")
			if res.StatusCode() != v.status || res.StatusCode() == 503 && len(res.Header.Peek("Retry-After")) == 0 {
				t.Errorf("answer %v, want %d", res, v.status)
			}
			if !slices.Equal(g.asked, v.asked) || len(y.clicks) != v.clicks {
				t.Errorf("asked %q and counted %d, want %q and %d", g.asked, len(y.clicks), v.asked, v.clicks)
			}
		})
	}
}
