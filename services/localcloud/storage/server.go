package storage

import (
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/linkreel/linkreel/services/localcloud/guard"
)

// Options configures a server. Only Dir is required.
type Options struct {
	// Dir contains everything: index.db, data/, tmp/ and the key files. Only one process at a time
	// may open it.
	Dir string
	// ObjectsDir, if set, contains the bytes (data/ and tmp/) instead of Dir. If it is on a
	// separate volume, uploads never use the space that records need. Open moves bytes that a
	// previous run stored in Dir.
	ObjectsDir string
	// MaxUpload is the maximum size of an object that PublicHandler accepts. 0 means production's
	// limit of 5 TiB. A signed x-goog-content-length-range may set a lower limit.
	MaxUpload int64
	// Reserve is the number of bytes on the objects' volume that uploads leave free. Uploads
	// through PublicHandler that would use these bytes return 507. Uploads through APIHandler may
	// use half of them. 0 means no reserve.
	Reserve int64
	// FreeSpace returns the free bytes on the objects' volume. Nil means the value that the
	// operating system reports.
	FreeSpace func() (int64, error)
	// APIHosts are additional host names for APIHandler, without the port. IP addresses and names
	// without a dot, such as localhost or a Kubernetes Service, are always accepted because public
	// DNS does not resolve them.
	APIHosts []string
	// Token is the token that callers of APIHandler must send, as "Authorization: Bearer TOKEN". It
	// must be at least 32 characters long. If Token contains several tokens, separated by commas,
	// each is accepted. If it is empty, callers do not need a token. Signed URLs and their sessions
	// are credentials themselves, so they never need a token.
	Token string
	// Buckets are created if they do not exist.
	Buckets []string
	// CORS is the rule set for every bucket in Buckets. Every Open applies it. Nil leaves a
	// bucket's rules unchanged. As in production, responses for a bucket without rules do not have
	// CORS headers.
	CORS []CORS
	// Clock provides the time for checking signatures and for object timestamps. Nil means
	// time.Now.
	Clock func() time.Time
	// Keys contains the public keys of other accepted signers, by service account.
	Keys map[string]*rsa.PublicKey
	// Key is the server's service account key file. If it is empty, Open uses the key in Dir, and
	// generates one if there is none. The servers in a test can share one key.
	Key []byte
	// PublicURL is the base for the session URIs that a signed POST returns. If it is empty, the
	// base consists of http and the request's Host.
	PublicURL string
	// APIURL is the base URL of the JSON API. A generated key file contains a token_uri below it,
	// so a client that needs an access token requests it from this server.
	APIURL string
	// Notify sends each change to an object to a receiver. If it is nil, changes are not recorded.
	Notify *Notify
	// Log receives the log lines from background work. Nil means slog.Default.
	Log *slog.Logger
}

// Server is an embedded object store. Its two handlers serve public and private callers.
type Server struct {
	st        *store
	sessions  *sessions
	faults    *Faults
	clock     func() time.Time
	log       *slog.Logger
	key       *serviceAccount
	keys      map[string]*rsa.PublicKey
	oidc      func() (*serviceAccount, error)
	publicURL string
	maxUpload int64
	apiHosts  []string
	tokens    guard.Tokens
	lastFull  atomic.Int64 // time of the last logged 507, in Unix seconds

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Open starts a server on dir. It accepts a previous server's directory, even if that server
// crashed.
func Open(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	tokens, err := guard.Parse(o.Token)
	if err != nil {
		return nil, fmt.Errorf("storage: cannot open: %w", err)
	}
	s := &Server{tokens: tokens, clock: o.Clock, log: o.Log, faults: newFaults(), publicURL: strings.TrimSuffix(o.PublicURL, "/"),
		maxUpload: maxObject, apiHosts: o.APIHosts}
	if o.MaxUpload > 0 {
		s.maxUpload = min(o.MaxUpload, maxObject)
	}
	st, err := openStore(o, s.faults)
	if err != nil {
		return nil, err
	}
	s.st = st
	if err := s.start(o); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return s, nil
}

func (s *Server) start(o Options) (err error) {
	if s.key, err = ownKey(o); err != nil {
		return err
	}
	s.keys = maps.Clone(o.Keys)
	if s.keys == nil {
		s.keys = map[string]*rsa.PublicKey{}
	}
	s.keys[s.key.Email] = &s.key.private.PublicKey
	s.oidc = sync.OnceValues(func() (*serviceAccount, error) { return loadKey(o.Dir, "oidc.json", "") })
	s.sessions = &sessions{st: s.st, clock: s.clock, live: map[string]*session{}}
	for _, name := range o.Buckets {
		if err := s.CreateBucket(name); err != nil {
			return err
		}
		if o.CORS == nil {
			continue
		}
		if _, err := s.st.amendBucket(name, cond{}, func(b *bucket) error { b.CORS = o.CORS; return nil }); err != nil {
			return err
		}
	}
	files, err := s.st.blobs()
	if err != nil {
		return fmt.Errorf("cannot list the stored files: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	if s.st.notes, err = openOutbox(s, o.Notify); err != nil {
		return err
	}
	s.wg.Go(func() { s.tidy(ctx, files) })
	s.wg.Go(func() { s.st.notes.run(ctx) })
	return nil
}

// tidy removes unreachable data: leftover files from a crash at startup, and expired sessions every
// hour.
func (s *Server) tidy(ctx context.Context, files []string) {
	if n, err := s.st.sweep(files); err != nil {
		s.log.Error("storage: cannot remove leftover files; the next start retries", "error", err)
	} else if n > 0 {
		s.log.Info("storage: removed leftover files that do not belong to any object", "files", n)
	}
	every := time.NewTicker(time.Hour)
	defer every.Stop()
	for {
		if err := s.sessions.expire(); err != nil {
			s.log.Error("storage: cannot expire sessions; retrying in an hour", "error", err)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close stops background work and closes the index. In-flight requests fail. Acknowledged data is
// kept.
func (s *Server) Close() error {
	s.stop()
	s.wg.Wait()
	return s.st.close()
}

// SetReadOnly turns read-only mode on or off. In this mode, the server does not create, replace,
// edit or delete objects. When SetReadOnly returns, all accepted changes are on disk and no more
// changes are accepted. Reads keep working. Resumable uploads continue up to the last byte, which
// clients must send again later.
func (s *Server) SetReadOnly(on bool) error {
	return s.st.update(false, func(*bolt.Tx) error { s.st.readOnly = on; return nil })
}

// CreateBucket creates a bucket. It does nothing if the bucket exists.
func (s *Server) CreateBucket(name string) error {
	_, err := s.st.createBucket(bucket{Name: name})
	if e := (*apiError)(nil); errors.As(err, &e) && e.status == http.StatusConflict {
		return nil
	}
	return err
}

var validBucket = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`)

// maxObject is production's limit on an object's size.
const maxObject = 5 << 40

// apiError is an error response. Each API writes it in its own format.
type apiError struct {
	status      int
	code        string // the XML API's error code
	msg         string
	notModified bool
	jsonStatus  int // the JSON API's status, if it differs
}

func (e *apiError) Error() string { return e.code + ": " + e.msg }

func fail(status int, code, f string, a ...any) *apiError {
	return &apiError{status: status, code: code, msg: fmt.Sprintf(f, a...)}
}

// asAPIError returns the response for err. An error that the client did not cause becomes a 503
// because every client retries a 503.
func (s *Server) asAPIError(r *http.Request, err error) *apiError {
	var e *apiError
	if errors.As(err, &e) && e.status == http.StatusInsufficientStorage {
		// Log this at most once per minute. Otherwise, clients that upload to a full disk would
		// also fill it with log lines.
		if now, last := s.clock().Unix(), s.lastFull.Load(); now-last >= 60 && s.lastFull.CompareAndSwap(last, now) {
			s.log.WarnContext(r.Context(), "storage: no room for an upload", "error", e.msg)
		}
	}
	if e == nil {
		s.log.ErrorContext(r.Context(), "storage: request failed", "method", r.Method, "error", err)
		return fail(503, "ServiceUnavailable", "Internal error, please retry.")
	}
	if e.notModified && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		return fail(304, "NotModified", "")
	}
	return e
}

func writeXMLError(w http.ResponseWriter, r *http.Request, e *apiError) {
	if e.status == http.StatusNotModified {
		w.WriteHeader(e.status)
		return
	}
	w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
	w.WriteHeader(e.status)
	if r.Method != http.MethodHead {
		fmt.Fprintf(w, "<?xml version='1.0' encoding='UTF-8'?><Error><Code>%s</Code><Message>", e.code)
		_ = xml.EscapeText(w, []byte(e.msg)) // the client may have disconnected
		_, _ = io.WriteString(w, "</Message></Error>")
	}
}

// reasons maps a status to the JSON API's reason.
var reasons = map[int]string{400: "invalid", 401: "authError", 403: "forbidden", 404: "notFound", 405: "methodNotAllowed",
	409: "conflict", 410: "gone", 412: "conditionNotMet", 421: "misdirected", 507: "insufficientStorage", 501: "notImplemented", 503: "backendError"}

func writeJSONError(w http.ResponseWriter, e *apiError) {
	if e.status == http.StatusNotModified {
		w.WriteHeader(e.status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	status := cmp.Or(e.jsonStatus, e.status)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": status, "message": e.msg,
		"errors": []map[string]string{{"domain": "global", "reason": reasons[status], "message": e.msg}}}})
}

// CORS is one of a bucket's rules, in the format of `gcloud storage buckets update --cors-file`.
type CORS struct {
	Origin         []string `json:"origin,omitempty"`
	Method         []string `json:"method,omitempty"`
	ResponseHeader []string `json:"responseHeader,omitempty"`
	MaxAgeSeconds  int      `json:"maxAgeSeconds,omitempty"`
}

// cors sets the headers from the bucket's first matching rule. If no rule matches, it does not set
// any.
func (s *Server) cors(w http.ResponseWriter, r *http.Request, bucketName string) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return
	}
	w.Header().Add("Vary", "Origin")
	b, err := s.st.bucket(bucketName)
	if err != nil {
		return
	}
	method, preflight := r.Method, r.Method == http.MethodOptions
	if preflight {
		method = r.Header.Get("Access-Control-Request-Method")
	}
	for _, c := range b.CORS {
		if !matches(c.Origin, origin) || !matches(c.Method, method) {
			continue
		}
		if preflight && !c.allowsHeaders(r.Header.Get("Access-Control-Request-Headers")) {
			continue
		}
		if slices.Contains(c.Origin, "*") {
			origin = "*"
		}
		h := w.Header()
		h.Set("Access-Control-Allow-Origin", origin)
		if preflight {
			h.Set("Access-Control-Allow-Methods", strings.Join(c.Method, ","))
			h.Set("Access-Control-Allow-Headers", strings.Join(c.ResponseHeader, ","))
			h.Set("Access-Control-Max-Age", fmt.Sprint(c.MaxAgeSeconds))
		} else {
			h.Set("Access-Control-Expose-Headers", strings.Join(c.ResponseHeader, ","))
		}
		return
	}
}

func matches(allowed []string, v string) bool {
	return slices.Contains(allowed, "*") || slices.Contains(allowed, v)
}

// safelisted request headers do not need permission. Browsers do not ask for it, but other clients
// may.
var safelisted = []string{"accept", "accept-language", "content-language"}

func (c CORS) allowsHeaders(asked string) bool {
	for h := range strings.SplitSeq(asked, ",") {
		h = strings.ToLower(strings.TrimSpace(h))
		if h == "" || slices.Contains(safelisted, h) {
			continue
		}
		if !slices.ContainsFunc(c.ResponseHeader, func(a string) bool {
			prefix, wild := strings.CutSuffix(strings.ToLower(a), "*")
			return wild && strings.HasPrefix(h, prefix) || strings.EqualFold(a, h)
		}) {
			return false
		}
	}
	return true
}
