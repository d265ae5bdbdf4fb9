package apikey

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/outage"
)

// verifyPath is the one internal route of auth.
const verifyPath = "/internal/v1/keys/verify"

// The two ends of the route share these types, so they cannot drift apart.
type (
	wireAsk struct {
		Hash string `json:"hash"`
	}
	// wireAnswer repeats the hash that was asked for: an answer to another
	// question (a confused proxy, a reused connection) is no answer. Found is a
	// pointer so that an empty object from elsewhere does not read as "no".
	wireAnswer struct {
		Hash   string      `json:"hash"`
		Found  *bool       `json:"found"`
		Record *wireRecord `json:"record,omitempty"`
	}
	wireRecord struct {
		KeyID       string           `json:"keyId"`
		KeyName     string           `json:"keyName,omitempty"`
		Scopes      []identity.Scope `json:"scopes"`
		ExpiresAt   *int64           `json:"expiresAt"` // ms; 0 is 1970
		RevokedAt   *int64           `json:"revokedAt"` // ms
		Session     bool             `json:"session,omitempty"`
		MemberID    string           `json:"memberId,omitempty"`
		MemberName  string           `json:"memberName,omitempty"`
		Role        identity.Role    `json:"role,omitempty"`
		AccountID   string           `json:"accountId"`
		AccountName string           `json:"accountName"`
		Plan        string           `json:"plan"`
		Suspended   bool             `json:"suspended,omitempty"`
		PerMinute   int              `json:"perMinute"`
		Links       int              `json:"maxLinks,omitempty"`
		Videos      int              `json:"maxVideos,omitempty"`
		Domains     int              `json:"maxDomains,omitempty"`
		StoredBytes int64            `json:"maxStoredBytes,omitempty"`
		Version     int64            `json:"version"`
	}
)

func toWire(r *Record) *wireRecord {
	return &wireRecord{
		KeyID: r.KeyID, KeyName: r.KeyName, Scopes: r.Scopes, ExpiresAt: toMillis(r.ExpiresAt), RevokedAt: toMillis(r.RevokedAt),
		Session: r.Session, MemberID: r.MemberID, MemberName: r.MemberName, Role: r.Role,
		AccountID: r.AccountID, AccountName: r.AccountName, Plan: r.Plan.String(), Suspended: r.Suspended,
		PerMinute: r.PerMinute, Links: r.Quotas.Links, Videos: r.Quotas.Videos, Domains: r.Quotas.Domains, StoredBytes: r.Quotas.StoredBytes, Version: r.Version,
	}
}

func (w *wireRecord) record() (*Record, error) {
	plan, err := identity.ParsePlan(w.Plan)
	if err != nil {
		return nil, err
	}
	return &Record{
		KeyID: w.KeyID, KeyName: w.KeyName, Scopes: w.Scopes, ExpiresAt: fromMillis(w.ExpiresAt), RevokedAt: fromMillis(w.RevokedAt),
		Session: w.Session, MemberID: w.MemberID, MemberName: w.MemberName, Role: w.Role,
		AccountID: w.AccountID, AccountName: w.AccountName, Plan: plan, Suspended: w.Suspended,
		PerMinute: w.PerMinute, Quotas: identity.Quotas{Links: w.Links, Videos: w.Videos, Domains: w.Domains, StoredBytes: w.StoredBytes}, Version: w.Version,
	}, nil
}

func toMillis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

func fromMillis(ms *int64) time.Time {
	if ms == nil {
		return time.Time{}
	}
	return time.UnixMilli(*ms)
}

// HTTPSource asks the auth service over its internal listener.
type HTTPSource struct {
	url, token string
	client     *http.Client
	late       time.Duration // when an answer is
}

// NewHTTPSource makes a source for auth's internal address, such as
// http://auth:9090, with the token that auth and its clients share.
func NewHTTPSource(baseURL, token string) *HTTPSource {
	dialer := &net.Dialer{Timeout: 500 * time.Millisecond, KeepAlive: 15 * time.Second}
	transport := &http.Transport{ // no Proxy: internal traffic never takes one
		DialContext: dialer.DialContext, MaxIdleConns: 128, MaxIdleConnsPerHost: 128,
		IdleConnTimeout: 60 * time.Second, TLSHandshakeTimeout: 500 * time.Millisecond,
	}
	return &HTTPSource{
		url: strings.TrimRight(baseURL, "/"), token: token,
		client: &http.Client{
			Transport:     otelhttp.NewTransport(transport),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		late: 700 * time.Millisecond,
	}
}

// Close frees idle connections.
func (s *HTTPSource) Close() { s.client.CloseIdleConnections() }

// Verify asks once, and once more when the first try broke or is late.
func (s *HTTPSource) Verify(ctx context.Context, hash string) (*Record, error) {
	return twice(ctx, s.late, func(ctx context.Context) (*Record, error) { return s.ask(ctx, hash) })
}

// twice asks, and asks once more when that broke or has no answer when it is late: a
// replica that just went away leaves connections that look alive. Whatever is answered
// first counts, and the first question goes on meanwhile. An auth that is merely busy
// would else be asked twice, and heard neither time.
func twice[T any](ctx context.Context, late time.Duration, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*late)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 2)
	begin := func() {
		go func() {
			value, err := ask(ctx)
			answers <- answer{value, err}
		}()
	}
	begin()
	again := time.After(late)
	for heard := 0; ; {
		select {
		case a := <-answers:
			heard++
			if a.err == nil || errors.Is(a.err, ErrUnknownKey) || heard == 2 || again != nil && !outage.Pause(ctx, 20*time.Millisecond) {
				return a.value, a.err
			}
		case <-again:
		}
		if again != nil {
			again = nil // no third time
			begin()
		}
	}
}

func (s *HTTPSource) ask(ctx context.Context, hash string) (*Record, error) {
	text, err := s.post(ctx, verifyPath, wireAsk{Hash: hash})
	if err != nil {
		return nil, err
	}
	return readAnswer(text, hash)
}

// post asks auth one question and gives the text of its answer.
func (s *HTTPSource) post(ctx context.Context, path string, question any) ([]byte, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, fmt.Errorf("encode question: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask auth: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("auth answered %d", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, fmt.Errorf("read auth's answer: %w", err)
	}
	return text, nil
}

// readAnswer accepts nothing that is not plainly the answer to hash: everything
// else is an auth that cannot be reached.
func readAnswer(text []byte, hash string) (*Record, error) {
	var a wireAnswer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, errors.New("auth's answer is not JSON")
	}
	switch {
	case a.Hash != hash || a.Found == nil || *a.Found != (a.Record != nil):
		return nil, errors.New("auth's answer does not fit the question")
	case !*a.Found:
		return nil, ErrUnknownKey
	}
	r, err := a.Record.record()
	if err != nil {
		return nil, fmt.Errorf("auth's answer: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("auth's answer: %w", err)
	}
	return r, nil
}

// Handler is auth's end of the routes, with that of [Rights] where source knows
// them. It belongs on the internal listener only and asks for the shared token all
// the same.
func Handler(source Source, token string) http.Handler {
	want := sha256.Sum256([]byte(token))
	mux := http.NewServeMux()
	add := func(path string, serve http.HandlerFunc) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
			got := sha256.Sum256([]byte(given))
			if token == "" || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				w.Header().Set("WWW-Authenticate", "Bearer")
				answer(w, http.StatusUnauthorized, errorBody(apierr.InvalidAPIKey, "internal token missing or wrong"))
				return
			}
			serve(w, r)
		})
	}
	add(verifyPath, func(w http.ResponseWriter, r *http.Request) { serveVerify(w, r, source) })
	if rights, ok := source.(Rights); ok {
		add(rightsPath, func(w http.ResponseWriter, r *http.Request) { serveRights(w, r, rights) })
	}
	return mux
}

// asked reads a question, and reports whether it is one.
func asked(w http.ResponseWriter, r *http.Request, question any) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return json.NewDecoder(http.MaxBytesReader(w, r.Body, 4<<10)).Decode(question) == nil && kind == "application/json"
}

// serving is the context to answer r in.
func serving(r *http.Request, what string) (ctx context.Context, end func()) {
	// The deadline is the end: behind fasthttp a request's context ends with the
	// server only, and asking it while the server stops is a race of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 2*time.Second)
	// Only services with the token come here, so their trace goes on.
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.HeaderCarrier(r.Header))
	ctx, span := otel.Tracer("auth-internal").Start(ctx, what, trace.WithSpanKind(trace.SpanKindServer))
	return ctx, func() { span.End(); cancel() }
}

func serveVerify(w http.ResponseWriter, r *http.Request, source Source) {
	var q wireAsk
	if !asked(w, r, &q) || !isHash(q.Hash) {
		answer(w, http.StatusBadRequest, errorBody(apierr.ValidationError, "hash must be a SHA-256 in lower-case hex"))
		return
	}
	ctx, end := serving(r, "verify key")
	defer end()
	rec, err := source.Verify(ctx, q.Hash)
	found := err == nil
	switch {
	case found:
		answer(w, http.StatusOK, wireAnswer{Hash: q.Hash, Found: &found, Record: toWire(rec)})
	case errors.Is(err, ErrUnknownKey):
		answer(w, http.StatusOK, wireAnswer{Hash: q.Hash, Found: &found})
	default:
		if r.Context().Err() == nil { // a caller that left is no failure of ours
			slog.WarnContext(ctx, "verify key", "error", err)
		}
		answer(w, http.StatusServiceUnavailable, errorBody(apierr.Unavailable, "keys cannot be verified right now"))
	}
}

func isHash(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

func errorBody(code apierr.Code, message string) any {
	return map[string]any{"error": map[string]any{"code": code, "message": message}}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller has left; nothing to tell it
}
