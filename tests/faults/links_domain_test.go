package faults_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// domainHost is the custom domain for these tests.
const domainHost = "go.example.com"

// domainVisits lists the visits that the domain counts, by the name of the count. Each entry has
// paths and the status of a counted response.
var domainVisits = map[string]struct {
	paths  []string
	status int
}{
	"home":     {[]string{"/", "/?from=poster"}, 404},
	"notFound": {[]string{"/nothing", "/none", "/over/deeper"}, 404},
	"ended":    {[]string{"/over"}, 410},
}

// domain claims and verifies the domain, creates an expired link on it, and returns the domain's
// ID. The processes must use the name server that proves the claim.
func (p *linksProcess) domain(t *testing.T, proof *atomic.Pointer[string]) string {
	t.Helper()
	var d struct {
		ID      string
		Records []struct{ Value string }
		Status  string
	}
	ask := func(path, body string, want int) {
		t.Helper()
		a := p.call("POST", path, body)
		if a.err != nil || a.status != want {
			t.Fatalf("%s returned %d, want success: %s %v", path, a.status, a.body, a.err)
		}
		if path != "/api/v1/links" {
			must(t, json.Unmarshal(a.body, &d))
		}
	}
	ask("/api/v1/domains", fmt.Sprintf(`{"hostname":%q}`, domainHost), 201)
	value := d.Records[0].Value
	proof.Store(&value)
	if ask("/api/v1/domains/"+d.ID+"/verify", "", 200); d.Status != "verified" {
		t.Fatalf("the domain has status %s, want verified", d.Status)
	}
	ask("/api/v1/links", fmt.Sprintf(`{"url":"https://example.com/","slug":"over","domainId":%q,"expiresAt":1000000000000}`, d.ID), 201)
	return d.ID
}

// domainZone starts a name server that returns the same text for every TXT query.
func domainZone(t *testing.T, proof *atomic.Pointer[string]) (addr string) {
	t.Helper()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	s := &dns.Server{PacketConn: udp, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		head := dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}
		r.Answer = append(r.Answer, &dns.TXT{Hdr: head, Txt: []string{*proof.Load()}})
		_ = w.WriteMsg(r)
	})}
	go func() { _ = s.ActivateAndServe() }()
	t.Cleanup(func() { _ = s.Shutdown() })
	return udp.LocalAddr().String()
}

// By default the test kills each server a few times. With LINKREEL_FULL=1 there are 50 kills.
func TestKillsLoseAndDoubleNoVisitOfADomain(t *testing.T) {
	t.Parallel()
	b := newLinksWorld(t)
	var proof atomic.Pointer[string]
	b.env = []string{"DNS_RESOLVER=" + domainZone(t, &proof)}
	a, z, flusher := b.start(false), b.start(false), b.start(true)
	id := a.domain(t, &proof)

	answered, broken, others := map[string]*atomic.Int64{}, map[string]*atomic.Int64{}, new(atomic.Int64)
	done := make(chan struct{})
	var visitors sync.WaitGroup
	for kind, of := range domainVisits {
		answered[kind], broken[kind] = new(atomic.Int64), new(atomic.Int64)
		for _, p := range []*linksProcess{a, z} {
			visitors.Go(func() {
				c := &linksConn{addr: p.redirect, host: domainHost}
				defer c.close()
				for pace := time.NewTicker(10 * time.Millisecond); ; {
					select {
					case <-done:
						return
					case <-pace.C:
					}
					status, _, err := c.visit(of.paths[rand.IntN(len(of.paths))])
					switch {
					case errors.Is(err, errLinksNotSent):
					case err != nil:
						broken[kind].Add(1)
					case status == of.status:
						answered[kind].Add(1)
					default:
						others.Add(1)
					}
				}
			})
		}
	}
	var deeds []func()
	for i := range authFull(4, 20) {
		p := []*linksProcess{a, z}[i%2]
		deeds = append(deeds, func() { p.kill(); p.run() })
	}
	for range authFull(2, 15) {
		deeds = append(deeds, func() { flusher.kill(); flusher.run() })
		deeds = append(deeds, func() { must(t, b.redis.Kill()); must(t, b.redis.Restart(t.Context())) })
	}
	rand.Shuffle(len(deeds), func(i, j int) { deeds[i], deeds[j] = deeds[j], deeds[i] })
	for _, kill := range deeds {
		time.Sleep(time.Duration(300+rand.IntN(400)) * time.Millisecond)
		kill()
	}
	time.Sleep(500 * time.Millisecond)
	close(done)
	visitors.Wait()

	var wrong []string
	var counted map[string]any
	last, told, since := "", "", time.Now()
	authUntil(t, "all visits are counted", time.Minute, func() bool {
		got := a.call("GET", "/api/v1/domains/"+id+"/stats", "")
		if got.err != nil || got.status != 200 || json.Unmarshal(got.body, &counted) != nil {
			return false
		}
		if string(got.body) != last {
			last, since = string(got.body), time.Now()
		}
		wrong = nil
		for kind := range domainVisits {
			n, sure := int64(counted[kind].(float64)), answered[kind].Load()
			if n < sure || n > sure+broken[kind].Load() {
				wrong = append(wrong, fmt.Sprintf("%s: %d counted, %d answered, %d interrupted", kind, n, sure, broken[kind].Load()))
			}
		}
		if time.Since(since) > 2500*time.Millisecond && len(wrong) > 0 && told != last {
			told = last
			t.Log(strings.Join(wrong, "; "))
		}
		// A visit that is counted twice may arrive late: wait until nothing has changed for 2.5 s.
		return len(wrong) == 0 && time.Since(since) > 2500*time.Millisecond
	})
	for kind := range domainVisits {
		t.Logf("%s: %v counted, %d answered, %d interrupted", kind, counted[kind], answered[kind].Load(), broken[kind].Load())
		if answered[kind].Load() == 0 {
			t.Errorf("no %s visits were answered", kind)
		}
	}
	t.Logf("%d kills; %d other responses", len(deeds), others.Load())
}
