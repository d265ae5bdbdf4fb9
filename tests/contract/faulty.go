package contract

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Faulty is a proxy in front of a deployment, and in front of its object storage. It does what bad
// networks do to every third request, never more than three times in a row: it drops requests and
// answers, cuts answers in the middle, delays and doubles requests, and answers in the service's
// place. The first request that waits for events finds that everything is away, for some seconds.
type Faulty struct {
	// URL is the base address for the client under test.
	URL string

	backend string
	rewrite *strings.Replacer
	outage  time.Duration
	http    *http.Client

	mu     sync.Mutex
	random *rand.Rand
	row    int // faults since the last request that passed
	told   int // faults in all
	away   time.Time
	counts map[string]int
}

// NewFaulty starts a proxy for a deployment whose upload addresses begin with uploads. It ends with
// the test.
func NewFaulty(t testing.TB, base, uploads string) *Faulty {
	t.Helper()
	storage := newFaulty(uploads, 0)
	storage.URL = serve(t, storage)
	f := newFaulty(base, 4*time.Second)
	f.rewrite = strings.NewReplacer(uploads, storage.URL)
	f.URL = serve(t, f)
	return f
}

func serve(t testing.TB, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.URL
}

func newFaulty(backend string, outage time.Duration) *Faulty {
	return &Faulty{
		backend: backend, rewrite: strings.NewReplacer(), outage: outage, counts: map[string]int{}, random: rand.New(rand.NewPCG(20, 26)),
		http: &http.Client{
			Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 20},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Counts says how often each fault has happened to calls of the API.
func (f *Faulty) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// The faults, in the order in which they happen.
var faults = []string{"dropped", "lost", "cut", "delayed", "doubled", "replaced"}

// next decides what happens to a request; "" is nothing.
func (f *Faulty) next(r *http.Request) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := r.URL.Query().Has("wait")
	if held && f.away.IsZero() && f.outage > 0 {
		f.away = time.Now().Add(f.outage)
	}
	fault := ""
	switch {
	case time.Now().Before(f.away):
		fault = "away"
	case f.row < 3 && f.random.IntN(3) == 0:
		fault = faults[f.told%len(faults)]
		f.row++
		f.told++
	default:
		f.row = 0
	}
	f.counts[fault]++
	return fault
}

// ServeHTTP treats one request.
func (f *Faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	fault := f.next(r)
	switch fault {
	case "away", "dropped":
		panic(http.ErrAbortHandler) // closes the connection
	case "delayed":
		time.Sleep(300 * time.Millisecond) // a slow network, not a wait for something
	case "replaced":
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = w.Write([]byte("<h1>502 Bad Gateway</h1>"))
		return
	case "doubled":
		// A network that repeats a DELETE shows its first answer; of everything else it shows the last.
		if res, _, err := f.forward(r, body); err == nil && r.Method == http.MethodDelete {
			w.WriteHeader(res.StatusCode)
			return
		}
	}
	res, answer, err := f.forward(r, body)
	if err != nil || fault == "lost" {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), res.Header)
	w.Header().Set("Content-Length", fmt.Sprint(len(answer)))
	if res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified {
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(res.StatusCode)
	if fault == "cut" {
		_, _ = w.Write(answer[:len(answer)/2])
		_ = http.NewResponseController(w).Flush() // so that the half is on its way before the end
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(answer)
}

func (f *Faulty) forward(r *http.Request, body []byte) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, f.backend+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header = r.Header.Clone()
	req.ContentLength = int64(len(body))
	res, err := f.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	return res, []byte(f.rewrite.Replace(string(answer))), err
}
