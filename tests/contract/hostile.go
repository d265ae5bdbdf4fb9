package contract

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Hostile is a proxy in front of a deployment that injects the failures of a bad network. It drops
// requests before or after they take effect, truncates responses, sends requests twice, delays
// them, and answers in place of the deployment. It forwards at least one in four identical requests
// without a failure, so a client that retries often enough gets its response.
type Hostile struct {
	Target string // the deployment's URL
	Seed   uint64 // the seed for the choice of failures
	// Rewrite, if set, changes responses, for example to point URLs at another proxy.
	Rewrite *strings.Replacer
	// Outage, if set, makes the deployment unreachable once, for this duration. The outage starts
	// while a client is reading the feed, because a client gives up if its first request fails.
	Outage time.Duration

	mu    sync.Mutex
	feed  bool // a request for the feed was forwarded
	away  time.Time
	rng   *rand.Rand
	row   map[string]int // consecutive failures, by request
	Deeds map[string]int // how many times each failure was injected, by name
}

var misdeeds = []string{"drop", "lose", "cut", "shorten", "double", "delay", "portal", "gateway", "busy"}

// choose returns the failure to inject into a request. "" means that the proxy forwards it.
func (h *Hostile) choose(r *http.Request) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rng == nil {
		h.rng, h.row, h.Deeds = rand.New(rand.NewPCG(h.Seed, 1)), map[string]int{}, map[string]int{}
	}
	query := r.URL.Query()
	feed := query.Has("wait") && !query.Has("object") // a wait for one record does not count
	if feed && h.feed && h.away.IsZero() && h.Outage > 0 {
		h.away = time.Now().Add(h.Outage)
	}
	if time.Now().Before(h.away) {
		h.Deeds["away"]++
		return "drop"
	}
	alike := r.Method + r.URL.RequestURI() + r.Header.Get("Idempotency-Key")
	if h.row[alike] == 3 || h.rng.IntN(2) == 0 {
		h.row[alike], h.feed = 0, h.feed || feed
		return ""
	}
	h.row[alike]++
	deed := misdeeds[h.rng.IntN(len(misdeeds))]
	h.Deeds[deed]++
	return deed
}

// ServeHTTP forwards one request or injects a failure.
func (h *Hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	deed := h.choose(r)
	switch deed {
	case "drop":
		panic(http.ErrAbortHandler)
	case "portal":
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>Please sign in to this network.</html>")
		return
	case "busy":
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	res, answer, err := h.forward(r, body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch deed {
	case "double":
		_, _, _ = h.forward(r, body) // the client gets the first response
	case "delay":
		select {
		case <-r.Context().Done():
		case <-time.After(50 * time.Millisecond):
		}
	case "lose":
		panic(http.ErrAbortHandler)
	case "gateway":
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	for name, values := range res.Header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	if deed == "shorten" {
		answer = answer[:len(answer)/2]
	}
	w.WriteHeader(res.StatusCode)
	if deed == "cut" {
		_, _ = w.Write(answer[:len(answer)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(answer)
}

func (h *Hostile) forward(r *http.Request, body []byte) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, h.Target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header = r.Header.Clone()
	if h.Rewrite != nil {
		req.Header.Del("Accept-Encoding")
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if h.Rewrite != nil {
		answer = []byte(h.Rewrite.Replace(string(answer)))
	}
	return res, answer, err
}
