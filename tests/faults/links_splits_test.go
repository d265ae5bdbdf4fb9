package faults_test

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// split is a link that divides its visitors. It records what the visits have revealed about each
// visitor's position on the line from 0 to 100.
type split struct {
	slug, id  string
	percent   []int
	from, end []int // by visitor; the position is at least from and less than end
}

// set divides the visitors by percent. The shares add up to 100.
func (s *split) set(t *testing.T, p *linksProcess, percent ...int) {
	t.Helper()
	var rules []map[string]any
	for i, share := range percent {
		to := fmt.Sprint("https://rule.example/", i)
		rules = append(rules, map[string]any{"name": fmt.Sprint("r", i), "url": to, "when": map[string]any{"percent": share}})
	}
	fields := map[string]any{"rules": rules}
	method, path, wanted := "PATCH", "/api/v1/links/"+s.id, 200
	if s.id == "" {
		method, path, wanted = "POST", "/api/v1/links", 201
		fields["slug"], fields["url"] = s.slug, "https://base.example/"
	}
	body, err := json.Marshal(fields)
	must(t, err)
	got := p.call(method, path, string(body))
	if got.err != nil || got.status != wanted {
		t.Fatalf("%s with %s returned %d %s %v", method, body, got.status, got.body, got.err)
	}
	if s.percent = percent; s.id == "" {
		s.id = got.field(t, "id")
	}
}

// splitVisitor returns a visitor's headers. Every eighth visitor has an IPv6 network and uses
// a different address from it in each round.
func splitVisitor(n, round int) (agent, from string) {
	from = fmt.Sprintf("X-Forwarded-For: 11.%d.%d.%d", n>>16, n>>8&255, n&255)
	if n%8 == 0 {
		from = fmt.Sprintf("X-Forwarded-For: 2001:db8:%x:%x::%x", n>>16, n&0xffff, round+1)
	}
	return "User-Agent: " + decideAgents[n/8%len(decideAgents)][0], from
}

// visit makes every visitor visit the link once. The visits alternate between the replicas. It
// records what each response reveals about the visitor's position, and it reports a response that
// contradicts earlier ones. If half is not nil, visit calls it after half of the visits.
func (s *split) visit(t *testing.T, round int, half func(), replicas ...*linksProcess) {
	t.Helper()
	const workers = 16
	type share struct {
		begin, end int
		visitors   atomic.Int64
	}
	shares, to := make([]share, len(s.percent)), map[string]*share{}
	for i, begin := 0, 0; i < len(shares); i++ {
		shares[i].begin, shares[i].end = begin, begin+s.percent[i]
		begin = shares[i].end
		to[fmt.Sprint("https://rule.example/", i)] = &shares[i]
	}
	var done, wrong atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			conns := make([]*linksConn, len(replicas))
			for i, p := range replicas {
				conns[i] = &linksConn{addr: p.redirect}
				defer conns[i].close()
			}
			for n := w; n < len(s.from); n += workers {
				agent, from := splitVisitor(n, round)
				c := conns[(n+round)%len(conns)]
				status, location, err := c.askAs("GET", "/"+s.slug, agent, from)
				for tries := 0; err != nil && tries < 2000; tries++ { // the replica is restarting
					time.Sleep(5 * time.Millisecond)
					status, location, err = c.askAs("GET", "/"+s.slug, agent, from)
				}
				done.Add(1)
				in := to[location]
				if status != 302 || in == nil || in.begin >= s.end[n] || in.end <= s.from[n] {
					if wrong.Add(1) < 10 {
						t.Errorf("%s with the shares %v: visitor %d, with a position from %d to %d, got %d %q %v",
							s.slug, s.percent, n, s.from[n], s.end[n], status, location, err)
					}
					continue
				}
				in.visitors.Add(1)
				s.from[n], s.end[n] = max(in.begin, s.from[n]), min(in.end, s.end[n])
			}
		})
	}
	if half != nil {
		authUntil(t, "half of the visits have been made", 10*time.Minute, func() bool { return done.Load() >= int64(len(s.from)/2) })
		half()
	}
	wg.Wait()
	counts := make([]int64, len(shares))
	for i := range shares {
		counts[i] = shares[i].visitors.Load()
		if c := splitChance(len(s.from), int(counts[i]), float64(s.percent[i])/100); c < 1e-8 {
			t.Errorf("%s with the shares %v: share %d has %d of %d visitors, which has a probability of %.1g, want at least 1e-8", s.slug, s.percent, i, counts[i], len(s.from), c)
		}
	}
	t.Logf("%s with the shares %v: %v of %d visitors, %d wrong", s.slug, s.percent, counts, len(s.from), wrong.Load())
}

// splitChance returns the probability that a share has got of n visitors, or a more extreme number
// on the same side of the expected one, if each visitor is in the share with probability p.
func splitChance(n, got int, p float64) float64 {
	all, _ := math.Lgamma(float64(n + 1))
	exactly := func(k int) float64 {
		in, _ := math.Lgamma(float64(k + 1))
		out, _ := math.Lgamma(float64(n - k + 1))
		return math.Exp(all - in - out + float64(k)*math.Log(p) + float64(n-k)*math.Log1p(-p))
	}
	least, most := 0.0, 0.0
	for k := 0; k <= got; k++ {
		least += exactly(k)
	}
	for k := got; k <= n; k++ {
		most += exactly(k)
	}
	return min(least, most)
}

// Every visitor has one position on the line. It is the same on every replica, and it must survive
// a kill during the visits and edits to the shares. An edit that moves one boundary may move only
// the visitors between the old and the new boundary. Any other visitor who moved would contradict
// the position that the test has recorded. The shares must be within the bounds of the binomial
// distribution. In total, the 28 comparisons fail by chance in fewer than one in a million runs.
// With LINKREEL_FULL=1 there are 100,000 visitors.
func TestSplitsKeepTheirVisitors(t *testing.T) {
	t.Parallel()
	visitors := authFull(1_000, 100_000)
	b := newLinksWorld(t)
	b.env = []string{"LINKREEL_TRUSTED_PROXIES=127.0.0.1/32"}
	a, z := b.start(true), b.start(false)
	for i, c := range []struct {
		name  string
		edits [][]int // the first element has the shares from the create
	}{
		{"halves", [][]int{{50, 50}, {60, 40}, {55, 45}}},
		{"thirds", [][]int{{33, 33, 34}, {40, 26, 34}, {40, 30, 30}}},
		{"few", [][]int{{1, 99}, {2, 98}, {1, 99}}},
	} {
		s := &split{slug: c.name, from: make([]int, visitors), end: make([]int, visitors)}
		for n := range s.end {
			s.end[n] = 100
		}
		s.set(t, a, c.edits[0]...)
		s.visit(t, 0, nil, a, z)
		restart := []*linksProcess{a, z}[i%2]
		s.visit(t, 1, func() { restart.kill(); restart.run() }, a, z)
		for n, percent := range c.edits[1:] {
			s.set(t, z, percent...)
			s.visit(t, n+2, nil, a, z)
		}
	}
}
