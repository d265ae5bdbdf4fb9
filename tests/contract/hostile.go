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

// Hostile is a proxy in front of a deployment that does to requests what bad networks do: it drops
// them before or after they took effect, cuts answers, sends them twice, delays them, and answers
// in the deployment's place. Of four requests that are alike, at least one is passed on properly, so
// a client that tries often enough gets its answer.
type Hostile struct {
	Target string // the address of the deployment
	Seed   uint64 // for the choice of misdeeds
	// Rewrite, if set, changes answers, such as addresses that should lead to another proxy.
	Rewrite *strings.Replacer
	// Outage, if set, is how long the deployment is away, once, in the middle of a walk through the
	// feed: a client gives up if its first request already meets an outage.
	Outage time.Duration

	mu    sync.Mutex
	feed  bool // a request of the feed was passed on
	away  time.Time
	rng   *rand.Rand
	row   map[string]int // misdeeds in a row, by request
	Deeds map[string]int // how often each misdeed was done, by its name
}

var misdeeds = []string{"drop", "lose", "cut", "shorten", "double", "delay", "portal", "gateway", "busy"}

// choose returns what to do with a request; "" is to pass it on.
func (h *Hostile) choose(r *http.Request) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rng == nil {
		h.rng, h.row, h.Deeds = rand.New(rand.NewPCG(h.Seed, 1)), map[string]int{}, map[string]int{}
	}
	query := r.URL.Query()
	feed := query.Has("wait") && !query.Has("object") // and not the wait for one record
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

// ServeHTTP treats one request.
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
		_, _, _ = h.forward(r, body) // the client sees the first answer
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
