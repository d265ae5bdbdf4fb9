package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/outage"
)

// counts counts the responses by kind of request, and keeps the longest response time for each
// kind.
type counts struct {
	addrs map[string]string // addresses of the processes' ports

	mu      sync.Mutex
	answers map[string]int
	longest map[string]time.Duration
	calls   calls
	clicks  map[string]int64 // answered redirects, by link
	unknown int64            // redirects without a response, which may or may not be counted
}

// calls counts the calls during a failure.
type calls struct{ all, failed, redirects, redirectsFailed, playbackFailed int }

// clicks counts the clicks in a play.
type clicks struct{ answered, unknown, counted int64 }

func (c *counts) add(what string, status int, err error, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := fmt.Sprint(what, " ", status)
	if err != nil {
		answer = what + " failed"
	}
	if c.answers == nil {
		c.answers, c.longest = map[string]int{}, map[string]time.Duration{}
	}
	c.answers[answer]++
	if what != "webhook" {
		c.calls.add(what, err != nil || status >= http.StatusBadRequest)
	}
	c.longest[what] = max(c.longest[what], took)
}

func (c *calls) add(what string, failed bool) {
	c.all++
	if failed {
		c.failed++
	}
	switch {
	case what == "redirect" && failed:
		c.redirectsFailed++
	case what == "redirect":
		c.redirects++
	case what == "playback" && failed:
		c.playbackFailed++
	}
}

// take returns the counts since the last call.
func (c *counts) take() (string, calls) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, answer := range slices.Sorted(maps.Keys(c.answers)) {
		out = append(out, fmt.Sprintf("%s: %d", answer, c.answers[answer]))
	}
	for _, what := range slices.Sorted(maps.Keys(c.longest)) {
		out = append(out, fmt.Sprintf("longest %s: %s", what, c.longest[what].Round(time.Millisecond)))
	}
	made := c.calls
	c.answers, c.longest, c.calls = nil, nil, calls{}
	return strings.Join(out, ", "), made
}

// slugs is the number of links that the traffic visits all the time. colds is the number of links
// that it visits once on each pod.
const slugs, colds = 8, 1000

// makeTraffic creates an account, links, a webhook and a custom domain. Until ctx is done, it makes
// five redirects and one API call per second, a redirect for a link that is not in memory every two
// seconds, a visit to each custom domain over HTTPS every five seconds, a playback every ten
// seconds, and an upload every 40 seconds.
func (s *stack) makeTraffic(ctx context.Context) error {
	at := func(name string) string { return "http://" + s.counts.addrs[name] }
	var err error
	if s.key, err = s.account(ctx, "enterprise"); err != nil {
		return err
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.counts.add("webhook", http.StatusOK, nil, 0)
		_, _ = io.Copy(io.Discard, r.Body) // the response does not depend on the body
	}))
	context.AfterFunc(ctx, receiver.CloseClientConnections)
	if _, err := call(ctx, http.MethodPost, at("events.api")+"/api/v1/webhooks", s.key, map[string]any{"url": receiver.URL, "events": []string{"*"}}, &struct{}{}); err != nil {
		return err
	}
	s.counts.clicks = map[string]int64{}
	for i := range slugs {
		if _, err := call(ctx, http.MethodPost, at("links-1.api")+"/api/v1/links", s.key, map[string]any{"url": "https://example.com/" + fmt.Sprint(i), "slug": fmt.Sprint("failure-", i)}, &struct{}{}); err != nil {
			return err
		}
	}
	if err := s.startDomain(ctx); err != nil {
		return err
	}
	for first := 0; first < colds; first += 100 {
		var links []map[string]any
		for i := range 100 {
			links = append(links, map[string]any{"url": "https://example.com/cold", "slug": fmt.Sprint("cold-", first+i)})
		}
		if _, err := call(ctx, http.MethodPost, at("links-1.api")+"/api/v1/links/bulk", s.key, map[string]any{"urls": links}, &struct{}{}); err != nil {
			return err
		}
	}
	clip := filepath.Join(s.dir, "clip.mp4")
	if out, err := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc2=s=320x180:d=2", "-pix_fmt", "yuv420p", clip).CombinedOutput(); err != nil {
		return fmt.Errorf("ffmpeg failed: %w: %s", err, out)
	}
	go s.every(ctx, 200*time.Millisecond, s.visit)
	go s.every(ctx, 2*time.Second, s.visitCold)
	go s.every(ctx, time.Second, s.work)
	go s.every(ctx, 5*time.Second, s.visitDomains)
	go s.every(ctx, 10*time.Second, s.play)
	go s.every(ctx, 40*time.Second, func(ctx context.Context, turn int) { s.upload(ctx, clip, turn) })
	return nil
}

// account creates an account with a key.
func (s *stack) account(ctx context.Context, plan string) (key string, err error) {
	accounts := "http://" + s.counts.addrs["auth.operator"] + "/admin/v1/accounts"
	var account struct{ ID string }
	if _, err := call(ctx, http.MethodPost, accounts, operatorToken, map[string]any{"name": "Failures", "plan": plan}, &account); err != nil {
		return "", err
	}
	var created struct{ Key string }
	_, err = call(ctx, http.MethodPost, accounts+"/"+account.ID+"/keys", operatorToken, map[string]any{
		"name": "failures", "scopes": []string{
			"links:read", "links:write", "videos:read", "videos:write", "webhooks:read", "webhooks:write", "events:read", "domains:read", "domains:write",
		},
	}, &created)
	return created.Key, err
}

// every calls do at intervals, without waiting for unfinished calls.
func (s *stack) every(ctx context.Context, interval time.Duration, do func(context.Context, int)) {
	for turn := 0; ; turn++ {
		go do(ctx, turn)
		if !outage.Pause(ctx, interval) {
			return
		}
	}
}

// pod sends a request to one of the two links pods. If this pod does not accept connections, it
// sends the request to the other one, as a Service does after it has detected the failure.
func (s *stack) pod(ctx context.Context, turn int, method, port, path string, in, out any) (status int, err error) {
	for _, pod := range s.pods(turn) {
		if status, err = call(ctx, method, "http://"+s.counts.addrs[pod+"."+port]+path, s.key, in, out); err == nil || status != 0 {
			return status, err
		}
	}
	return status, err
}

// pods returns the links pods in the order in which to try them, leaving out any pod that is not
// ready.
func (s *stack) pods(turn int) []string {
	pods := []string{fmt.Sprint("links-", 1+turn%2), fmt.Sprint("links-", 1+(turn+1)%2)}
	for i, pod := range pods {
		if _, unready := s.unready.Load(pod); unready {
			return slices.Delete(pods, i, i+1)
		}
	}
	return pods
}

func (s *stack) visit(ctx context.Context, turn int) {
	begin, slug := time.Now(), fmt.Sprint("failure-", turn%slugs)
	status, err := s.pod(ctx, turn/slugs, http.MethodGet, "redirect", "/"+slug, nil, nil)
	if ctx.Err() == nil {
		s.counts.add("redirect", status, err, time.Since(begin))
	}
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	switch {
	case status == http.StatusFound:
		s.counts.clicks[slug]++
	case err != nil:
		s.counts.unknown++
	}
}

// visitCold requests a link that the pod has not read yet. Each link is requested once from each pod.
func (s *stack) visitCold(ctx context.Context, turn int) {
	begin := time.Now()
	address := fmt.Sprintf("http://%s/cold-%d", s.counts.addrs[s.pods(1 + turn/colds)[0]+".redirect"], turn%colds)
	status, err := call(ctx, http.MethodGet, address, "", nil, nil)
	if ctx.Err() == nil {
		s.counts.add("redirect of a link not in memory", status, err, time.Since(begin))
	}
}

// work alternates between a list and a create. A create writes an event.
func (s *stack) work(ctx context.Context, turn int) {
	begin := time.Now()
	var status int
	var err error
	what := "list"
	if turn%2 == 0 {
		status, err = s.pod(ctx, turn/2, http.MethodGet, "api", "/api/v1/links?limit=5", nil, nil)
	} else {
		what = "create"
		status, err = s.pod(ctx, turn/2, http.MethodPost, "api", "/api/v1/links", map[string]any{"url": "https://example.com/" + fmt.Sprint(turn)}, nil)
	}
	if ctx.Err() == nil {
		s.counts.add(what, status, err, time.Since(begin))
	}
}

func (s *stack) upload(ctx context.Context, clip string, turn int) {
	begin := time.Now()
	var video struct{ UploadURL string }
	status, err := call(ctx, http.MethodPost, "http://"+s.counts.addrs["videos.api"]+"/api/v1/videos", s.key, map[string]any{"title": fmt.Sprint("clip ", turn)}, &video)
	if err == nil {
		status, err = put(ctx, video.UploadURL, clip)
	}
	if ctx.Err() == nil {
		s.counts.add("upload", status, err, time.Since(begin))
	}
}

func put(ctx context.Context, address, path string) (status int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close() // the file is only read
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, f)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// alerts returns the firing alerts, with the labels that distinguish them.
func (s *stack) alerts(ctx context.Context) (map[string]bool, error) {
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	if err := s.query(ctx, "/api/v1/alerts", nil, &answer); err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, a := range answer.Data.Alerts {
		if a.State != "firing" || a.Labels["service"] == "console" { // this program does not run the console
			continue
		}
		name := a.Labels["alertname"]
		for _, label := range []string{"dependency", "reason", "service", "for", "pod", "window"} {
			if v := a.Labels[label]; v != "" {
				name += " " + label + "=" + v
			}
		}
		out[name] = true
	}
	return out, nil
}

// quiet waits until Prometheus has been scraping every process for three minutes and no alerts are
// firing.
func (s *stack) quiet(ctx context.Context) error {
	var firing map[string]bool
	for begin := time.Now(); time.Since(begin) < 15*time.Minute; {
		var err error
		if firing, err = s.alerts(ctx); err != nil {
			return err
		}
		if time.Since(begin) > 3*time.Minute && len(firing) == 0 {
			return nil
		}
		if !outage.Pause(ctx, 5*time.Second) {
			return ctx.Err()
		}
	}
	return fmt.Errorf("alerts are firing before the failure: %v", slices.Sorted(maps.Keys(firing)))
}

// watch records and prints which alerts start to fire and which resolve, with the time since the
// failure. It returns after long, or once done returns true.
func (s *stack) watch(ctx context.Context, long time.Duration, done func() bool) error {
	for begin := time.Now(); time.Since(begin) < long && !done(); {
		now, err := s.alerts(ctx)
		if err != nil {
			return err
		}
		at := time.Since(s.broken).Round(time.Second)
		for name := range now {
			seen, before := s.seen[name]
			if !before || seen.ended > 0 {
				s.say("%7s  fires: %s", at, name)
			}
			if !before {
				seen.fired = at
			}
			s.seen[name] = span{fired: seen.fired}
		}
		for name, seen := range s.seen {
			if !now[name] && seen.ended == 0 {
				s.say("%7s  ends:  %s", at, name)
				s.seen[name] = span{seen.fired, at}
			}
		}
		if !outage.Pause(ctx, 5*time.Second) {
			return ctx.Err()
		}
	}
	return nil
}

// ended reports whether all alerts have resolved, except those that may fire for longer than
// within.
func (s *stack) ended(within time.Duration) bool {
	for name, seen := range s.seen {
		if seen.ended == 0 && endsWithin(name) <= within {
			return false
		}
	}
	return true
}

// compareClicks waits until the counters of all links equal the number of answered redirects, or
// stop changing.
func (s *stack) compareClicks(ctx context.Context) (out clicks, err error) {
	for range 60 {
		s.counts.mu.Lock()
		answered := maps.Clone(s.counts.clicks)
		out = clicks{unknown: s.counts.unknown}
		s.counts.mu.Unlock()
		for slug, n := range answered {
			var page struct {
				Data []struct {
					Slug   string
					Clicks int64
				}
			}
			status, err := s.pod(ctx, 0, http.MethodGet, "api", "/api/v1/links?q="+url.QueryEscape(slug), nil, &page)
			if err != nil || status != http.StatusOK {
				return out, fmt.Errorf("cannot read the counters: status %d: %w", status, err)
			}
			out.answered += n
			for _, l := range page.Data {
				if l.Slug == slug {
					out.counted += l.Clicks
				}
			}
		}
		if out.counted >= out.answered {
			break
		}
		if !outage.Pause(ctx, time.Second) {
			return out, ctx.Err()
		}
	}
	return out, nil
}
