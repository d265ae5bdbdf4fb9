package redirect

import (
	"errors"
	"slices"
	"testing"

	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/links/internal/places"
)

// gate records its calls and returns err from each of them.
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
		"link without a limit":            {target: plain, status: 302, clicks: 1},
		"link with a limit":               {target: limited, status: 302, asked: []string{"take l |a"}, clicks: 1},
		"response superseded three times": {target: limited, again: 3, status: 302, asked: []string{"take l |a"}, clicks: 1},
		"response always superseded":      {target: limited, again: 99, status: 503, asked: []string{"take l |a", "back l |a"}},
		"slot with an unknown outcome":    {target: limited, err: errors.New("down"), status: 503, asked: []string{"take l |a"}},
		"link that keeps changing": {
			target: limited, err: places.ErrChanged, status: 503, asked: slices.Repeat([]string{"take l |a"}, tries),
		},
		"exhausted link": {target: usedUp, status: 410},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, g := &yes{again: v.again}, &gate{err: v.err}
			h, s := newHandler(y)
			h.opt.Places = g
			s.links["|a"] = v.target
			res := ask(h, "/a", "lrl.example")
			if res.StatusCode() != v.status || res.StatusCode() == 503 && len(res.Header.Peek("Retry-After")) == 0 {
				t.Errorf("response %v, want %d, and Retry-After with 503", res, v.status)
			}
			if !slices.Equal(g.asked, v.asked) || len(y.clicks) != v.clicks {
				t.Errorf("got calls %q and %d clicks, want %q and %d", g.asked, len(y.clicks), v.asked, v.clicks)
			}
		})
	}
}
