package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/linkreel/linkreel/libs/apispec"
)

// FuzzConfig configures a [Fuzz] run.
type FuzzConfig struct {
	BaseURL, AdminURL, AdminToken string
	// Requests is the total number of requests, excluding those that prepare accounts.
	Requests int
	// Seed makes a run repeatable, except for the order of concurrent requests.
	Seed uint64
	// Workers is the number of concurrent senders. The default is 4.
	Workers int
	// Client sends the requests. If it is nil, Fuzz uses a client with its own timeout.
	Client *http.Client
}

// FuzzReport holds the results from a run.
type FuzzReport struct {
	Requests    int
	Wrong       int // requests that the document does not allow
	Operations  map[string]int
	Statuses    map[int]int
	Faults      []string // the first fault of each kind
	FaultsTotal int
	Took        time.Duration
}

func (r *FuzzReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests (%d not allowed by the document) to %d operations in %s: %d faults; statuses", r.Requests, r.Wrong, len(r.Operations), r.Took.Round(time.Millisecond), r.FaultsTotal)
	for _, s := range slices.Sorted(maps.Keys(r.Statuses)) {
		fmt.Fprintf(&b, " %d×%d", s, r.Statuses[s])
	}
	for _, f := range r.Faults {
		b.WriteString("\n- " + f)
	}
	return b.String()
}

// Fuzz calls every operation in the document with valid, almost valid and invalid requests, which
// it generates from the schemas. It calls them as accounts on every plan, with valid and invalid
// keys. Each exchange must match the contract, responses must not be 5xx, and callers without a
// valid key must always get a 401. Fuzz returns an error only if it could not prepare the run. The
// report contains the faults.
func Fuzz(ctx context.Context, cfg FuzzConfig) (*FuzzReport, error) {
	if cfg.Workers <= 0 {
		cfg.Workers = 4
	}
	if cfg.Client == nil {
		cfg.Client = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: cfg.Workers * 2}}
	}
	f := &fuzzer{cfg: cfg, check: Load(), pool: map[string][]string{}, untouchable: map[string]bool{},
		report: &FuzzReport{Operations: map[string]int{}, Statuses: map[int]int{}}, kinds: map[string]bool{}}
	if err := json.Unmarshal(apispec.Load().JSON(), &f.doc); err != nil {
		return nil, err
	}
	for _, r := range apispec.Load().Routes() {
		op, _ := dig(f.doc, "paths", r.Path, strings.ToLower(r.Method)).(map[string]any)
		f.ops = append(f.ops, fuzzOp{r, op})
		if strings.HasPrefix(r.OperationID, "create") {
			f.makers = append(f.makers, fuzzOp{r, op})
		}
	}
	if err := f.prepare(ctx); err != nil {
		return nil, fmt.Errorf("cannot prepare the accounts: %w", err)
	}
	started := time.Now()
	var wg sync.WaitGroup
	for w := range cfg.Workers {
		n := cfg.Requests / cfg.Workers
		if w == 0 {
			n += cfg.Requests % cfg.Workers
		}
		wg.Go(func() {
			s := &source{rand.New(rand.NewPCG(cfg.Seed, uint64(w)))}
			for i := 0; i < n && ctx.Err() == nil; i++ {
				f.one(ctx, s)
			}
		})
	}
	wg.Wait()
	f.report.Took = time.Since(started)
	return f.report, ctx.Err()
}

type fuzzer struct {
	cfg    FuzzConfig
	check  *Contract
	doc    map[string]any
	ops    []fuzzOp
	makers []fuzzOp
	actors []actor

	mu          sync.Mutex
	pool        map[string][]string // IDs by prefix
	untouchable map[string]bool     // IDs that the run needs
	report      *FuzzReport
	kinds       map[string]bool
}

type fuzzOp struct {
	apispec.Route
	value map[string]any
}

// actor is a caller. Most requests come from an actor with a valid key.
type actor struct {
	name, bearer string
	dead         bool // must always get a 401
}

// prepare creates many accounts on the top plan so that rate limits do not hide the services' own
// responses. It also creates one account for each kind of error.
func (f *fuzzer) prepare(ctx context.Context) error {
	good := 1 + f.cfg.Requests/2000
	for i := range good {
		key := map[string]any{"scopes": dig(f.doc, "components", "schemas", "Scope", "enum")}
		if err := f.addActor(ctx, fmt.Sprintf("enterprise %d", i), "enterprise", key); err != nil {
			return err
		}
	}
	for _, plan := range []string{"free", "creator", "business"} {
		if err := f.addActor(ctx, plan, plan, map[string]any{}); err != nil {
			return err
		}
	}
	if err := f.addActor(ctx, "reader", "business", map[string]any{"scopes": []string{"links:read"}}); err != nil {
		return err
	}
	// A new key cannot have an expiry in the past. A busy machine may need a few seconds to create
	// this key, so it expires after three.
	if err := f.addActor(ctx, "expired", "business", map[string]any{"expiresAt": time.Now().Add(3 * time.Second).UnixMilli()}); err != nil {
		return err
	}
	if err := f.awaitEnd(ctx, f.actors[len(f.actors)-1].bearer); err != nil {
		return err
	}
	f.actors[len(f.actors)-1].dead = true
	f.actors = append(f.actors,
		actor{name: "nobody", dead: true},
		actor{name: "mistyped", bearer: "Bearer lr_live_" + strings.Repeat("A", 38), dead: true},
		actor{name: "scheme", bearer: "Basic dXNlcjpwYXNz", dead: true},
		actor{name: "odd", bearer: "Bearer \u00e4\u00f6", dead: true},
	)
	return nil
}

func (f *fuzzer) addActor(ctx context.Context, name, plan string, key map[string]any) error {
	var account, made struct{ ID, Key string }
	if err := f.admin(ctx, "/admin/v1/accounts", map[string]any{"name": "fuzz " + name, "plan": plan}, &account); err != nil {
		return err
	}
	key["name"] = "fuzz"
	if err := f.admin(ctx, "/admin/v1/accounts/"+account.ID+"/keys", key, &made); err != nil {
		return err
	}
	f.untouchable[account.ID], f.untouchable[made.ID] = true, true
	f.actors = append(f.actors, actor{name: name, bearer: "Bearer " + made.Key})
	return nil
}

// awaitEnd waits until a key has expired.
func (f *fuzzer) awaitEnd(ctx context.Context, bearer string) error {
	for pace := time.NewTicker(100 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.cfg.BaseURL+"/api/v1/account", nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", bearer)
		res, err := f.cfg.Client.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close() // only the status matters
		if res.StatusCode == http.StatusUnauthorized {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pace.C:
		}
	}
}

func (f *fuzzer) admin(ctx context.Context, path string, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.cfg.AdminURL+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+f.cfg.AdminToken)
	req.Header.Set("Content-Type", "application/json")
	res, err := f.cfg.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(res.Body)
		return fmt.Errorf("%s: status %d: %s", path, res.StatusCode, text)
	}
	return json.NewDecoder(res.Body).Decode(out)
}

// open reports whether an operation can be called without a key.
func (f *fuzzer) open(operationID string) bool {
	return slices.ContainsFunc(apispec.Load().Routes(), func(r apispec.Route) bool { return r.Open && r.OperationID == operationID })
}

func (f *fuzzer) one(ctx context.Context, s *source) {
	op := f.ops[s.IntN(len(f.ops))]
	if s.IntN(4) == 0 {
		op = pick(s, f.makers) // so that most requested IDs exist
	}
	who := f.actor(s)
	base := f.cfg.BaseURL
	if op.Tag == "Operator" {
		base = f.cfg.AdminURL
		who = actor{name: "operator", bearer: "Bearer " + f.cfg.AdminToken}
		if s.IntN(8) == 0 {
			who = actor{name: "stranger", bearer: pick(s, []string{"", "Bearer wrong", "Bearer " + f.cfg.AdminToken + "x"}), dead: true}
		}
	}
	target := base + f.path(s, op) + f.query(s, op)
	header := http.Header{}
	if who.bearer != "" {
		header.Set("Authorization", who.bearer)
	}
	var body []byte
	if op.value["requestBody"] != nil {
		contentType := "application/json"
		if op.OperationID == "putCaptions" {
			contentType, body = "text/vtt", s.captions()
		} else {
			body = s.body(f.doc, dig(op.value, "requestBody", "content", "application/json", "schema"))
		}
		if s.IntN(25) == 0 {
			contentType = pick(s, []string{"text/plain", "application/xml", "application/json; charset=utf-8", "application/json; charset=latin1", "a/b/c", "multipart/form-data"})
		}
		header.Set("Content-Type", contentType)
	}
	if op.Method == http.MethodPost && s.IntN(4) == 0 {
		header.Set("Idempotency-Key", pick(s, []string{s.word(12), s.word(12), s.word(255), s.word(256), "two words", "\u00fc", fmt.Sprint("shared-", s.IntN(50))}))
	}
	if op.Method != http.MethodPost && s.IntN(6) == 0 {
		header.Set(pick(s, []string{"If-Match", "If-None-Match"}), pick(s, []string{"*", `"r1"`, `W/"r1"`, "r1", `"a", "b"`, `"`}))
	}
	method := op.Method
	if s.IntN(60) == 0 {
		method = pick(s, []string{"HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"})
	}
	f.send(ctx, op, who, method, target, header, body)
}

func (f *fuzzer) send(ctx context.Context, op fuzzOp, who actor, method, target string, header http.Header, body []byte) {
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
	if err != nil {
		return // Go cannot send this URL
	}
	req.Header = header
	res, err := f.cfg.Client.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			f.fault(op, "no response: "+err.Error(), method, target, body, nil)
		}
		return
	}
	answer, err := io.ReadAll(res.Body)
	_ = res.Body.Close() // the body has been read completely
	if err != nil {
		f.fault(op, "the response was cut off: "+err.Error(), method, target, body, nil)
		return
	}
	if Dotted(req.URL) {
		if !slices.Contains([]int{400, 404, 413, 431}, res.StatusCode) {
			f.fault(op, fmt.Sprintf("status %d for a path with a dot segment, want an error", res.StatusCode), method, target, body, answer)
		}
		return
	}
	x := &Exchange{Method: method, URL: req.URL, Header: header, Body: body, Status: res.StatusCode, Answer: res.Header, AnswerBody: answer}
	verdict := f.check.Check(x)
	wrong := x.Status >= 400 && f.check.Wrong(x) != nil // an invalid request that succeeded has already been counted as a fault
	switch {
	case x.Status >= 500:
		f.fault(op, fmt.Sprintf("status %d", x.Status), method, target, body, answer)
	case verdict != nil:
		f.fault(op, brief(verdict), method, target, body, answer)
	case who.dead && x.OperationID != "" && !f.open(x.OperationID) && !slices.Contains([]int{401, 413, 431}, x.Status):
		f.fault(op, fmt.Sprintf("status %d for %s, want 401", x.Status, who.name), method, target, body, answer)
	case !who.dead && x.Status == http.StatusUnauthorized:
		f.fault(op, "status 401 for the valid key of "+who.name, method, target, body, answer)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Requests++
	f.report.Operations[op.OperationID]++
	f.report.Statuses[x.Status]++
	if wrong {
		f.report.Wrong++
	}
	// A list of all accounts contains accounts from other tests on the same stack. The fuzzer must
	// not suspend or delete them.
	if x.Status < 300 && op.OperationID != "adminListAccounts" {
		f.learn(answer)
	}
}

// Dotted reports whether a segment of the path is "." or "..". Services reject such a path before
// routing, regardless of the operation.
func Dotted(u *url.URL) bool {
	for segment := range strings.FieldsFuncSeq(u.Path, func(r rune) bool { return r == '/' || r == '\\' }) {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}

// brief returns an error's text without the schema and the value at its end.
func brief(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\nSchema:")
	return text
}

// fault records the first fault of each kind. A kind is an operation and the message without the
// parts that differ between requests.
func (f *fuzzer) fault(op fuzzOp, what, method, target string, body, answer []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.FaultsTotal++
	line, _, _ := strings.Cut(what, "\n")
	kind := op.OperationID + line[:min(len(line), 60)]
	if f.kinds[kind] || len(f.report.Faults) >= 40 {
		return
	}
	f.kinds[kind] = true
	f.report.Faults = append(f.report.Faults, fmt.Sprintf("%s: %s %s: %.600s\n    body   %.200q\n    answer %.300q", op.OperationID, method, target, what, body, answer))
}

// learn keeps the IDs and cursors from a response for later requests.
func (f *fuzzer) learn(answer []byte) {
	var v any
	if json.Unmarshal(answer, &v) != nil {
		return
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, c := range v {
				f.note(k, c)
				walk(c)
			}
		case []any:
			for _, c := range v {
				walk(c)
			}
		}
	}
	walk(v)
}

// note keeps a value if its name shows that it is an ID or a cursor.
func (f *fuzzer) note(name string, value any) {
	if n, ok := value.(float64); ok && name == "nextCursor" {
		value = strconv.FormatInt(int64(n), 10)
	}
	text, ok := value.(string)
	if !ok || f.untouchable[text] {
		return
	}
	prefix, _, _ := strings.Cut(text, "_")
	switch name {
	case "id", "_id", "videoId":
	case "nextCursor":
		prefix = "cursor"
	default:
		return
	}
	if list := f.pool[prefix]; len(list) < 300 {
		f.pool[prefix] = append(list, text)
	} else {
		list[rand.IntN(len(list))] = text
	}
}

func (f *fuzzer) actor(s *source) actor {
	if s.IntN(6) > 0 {
		good := 1 + f.cfg.Requests/2000
		return f.actors[s.IntN(good)]
	}
	return pick(s, f.actors)
}

var idPrefix = []struct{ path, prefix string }{
	{"/links/", "lnk"}, {"/domains/", "dom"}, {"/videos/", "vid"}, {"/keys/", "key"}, {"/accounts/", "acc"},
	{"/webhooks/", "whk"}, {"/members/", "mem"}, {"/invitations/", "inv"}, {"/takedowns/", "tkd"},
}

func (f *fuzzer) path(s *source, op fuzzOp) string {
	if s.IntN(80) == 0 {
		return "/api/v1/" + url.PathEscape(s.text(10))
	}
	path := strings.Replace(op.Path, "{lang}", pick(s, []string{"en", "de", "pt-BR", "zz", "e", "english-language-of-the-queen-of-kent", "en_US", "%2e%2e", "en%00"}), 1)
	path = strings.Replace(path, "{delivery}", f.known(s, "whd", s.word(20)), 1)
	if !strings.Contains(path, "{id}") {
		return path
	}
	id := pick(s, []string{"lnk_0000000000000000", "x", s.word(300), url.PathEscape(s.text(20)), "%00", "..", "%2e%2e%2fadmin", "bulk"})
	if s.IntN(4) > 0 {
		for _, p := range idPrefix {
			if strings.Contains(path, p.path) {
				id = f.known(s, p.prefix, id)
			}
		}
	}
	return strings.Replace(path, "{id}", id, 1)
}

// known returns an ID or a cursor from an earlier response. If there is none yet, it returns the
// argument without.
func (f *fuzzer) known(s *source, prefix, without string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if list := f.pool[prefix]; len(list) > 0 {
		return pick(s, list)
	}
	return without
}

func (f *fuzzer) query(s *source, op fuzzOp) string {
	params, _ := op.value["parameters"].([]any)
	q := url.Values{}
	for _, p := range params {
		m, _ := f.resolve(p).(map[string]any)
		name, _ := m["name"].(string)
		if m["in"] != "query" || s.IntN(2) == 0 {
			continue
		}
		switch name {
		case "limit":
			q.Set(name, pick(s, []string{"1", "20", "100", "0", "101", "-1", "1.5", "", "ten", "1e2", "+5", "0x10", "99999999999999999999", "٣"}))
		case "cursor", "after":
			q.Set(name, pick(s, []string{"1790000000000000", "0", "1", "9007199254740991", "9007199254740992", "-1", "abc", "", "1.5", "1e3", "nonsense",
				f.known(s, "evt", ""), f.known(s, "cursor", ""), f.known(s, "cursor", "")}))
		case "wait":
			q.Set(name, pick(s, []string{"0", "0", "-1", "26", "1.5", "", "x"})) // a valid wait would only slow down the run
		case "from", "to":
			q.Set(name, pick(s, []string{"2026-11-01", "2026-11-20", "2026-02-30", "2026-13-01", "yesterday", "", "20261101", "2000-01-01", "9999-12-31", "2026-11-01T00:00:00Z"}))
		default:
			f.queryValue(s, q, name, m["schema"])
		}
		if s.IntN(30) == 0 {
			q.Add(name, "7")
		}
	}
	if s.IntN(30) == 0 {
		q.Set(s.word(5), s.text(5))
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// queryValue usually sets a parameter to a value that its schema allows, and sometimes to arbitrary
// text. For a list, it repeats the parameter.
func (f *fuzzer) queryValue(s *source, q url.Values, name string, schema any) {
	if s.IntN(8) == 0 {
		q.Set(name, s.text(s.IntN(10)))
		return
	}
	value := s.value(f.doc, schema, name, 0)
	if list, ok := value.([]any); ok {
		for _, v := range list {
			q.Add(name, fmt.Sprint(v))
		}
		return
	}
	q.Set(name, fmt.Sprint(value))
}

func (f *fuzzer) resolve(v any) any {
	m, _ := v.(map[string]any)
	ref, ok := m["$ref"].(string)
	if !ok {
		return v
	}
	return dig(f.doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
}

// source generates values.
type source struct{ *rand.Rand }

func pick[T any](s *source, from []T) T { return from[s.IntN(len(from))] }

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func (s *source) word(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[s.IntN(len(letters))]
	}
	return string(b)
}

// text returns a string with characters that often cause errors in programs.
func (s *source) text(n int) string {
	odd := []rune("aZ09 -_./\\<>&'\"%?#=;:@\u00fc\u00df\u0130\u202e\u200b\ufeff\u00a0\u1f600\U0001f600\U0010ffff\t\n")
	var b strings.Builder
	for range n {
		b.WriteRune(odd[s.IntN(len(odd))])
	}
	return b.String()
}

func (s *source) captions() []byte {
	return []byte(pick(s, []string{
		"WEBVTT\n\n00:00.000 --> 00:02.000\nHello\n", "WEBVTT\n", "", "WEBVT", "\ufeffWEBVTT\n\n00:00.000 --> 00:01.000\nHi\n",
		"1\n00:00:00,000 --> 00:00:02,000\nHello\n", "WEBVTT\n\n00:02.000 --> 00:01.000\nBackwards\n", "\xff\xfe", "WEBVTT\n\x00",
	}))
}

// body returns a body that is usually valid, and otherwise invalid in one of many ways.
func (s *source) body(doc map[string]any, schema any) []byte {
	v := s.value(doc, schema, "", 0)
	if m, ok := v.(map[string]any); ok {
		switch s.IntN(10) {
		case 0, 1, 2:
			s.spoil(m)
		case 3:
			m[s.word(6)] = s.junk(2)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("{}")
	}
	switch s.IntN(24) {
	case 0:
		return b[:s.IntN(len(b)+1)]
	case 1:
		return append(b, pick(s, []string{"{}", "]", " x", "\x00"})...)
	case 2:
		return bytes.Replace(b, []byte("{"), []byte(`{"url":"https://example.com","url":"https://example.org",`), 1)
	case 3:
		return []byte(pick(s, []string{"", "null", "[]", "5", `"text"`, "true", "{", "\xff\xfe{}", "{\"url\":\"\xff\"}", "\ufeff{}", `{"url":1e999}`, `{"expiresAt":1e400,"url":"https://example.com"}`,
			`{"url":"https://example.com","title":"\ud800"}`, `{"url":"https://example.com","title":"\u0000"}`, `{"title":"\udc00\ud800","privacy":"public"}`, `{'url':'x'}`, `{"url":"https://example.com",}`, `{"URL":"https://example.com"}`, `{"expiresAt":-0}`, `{"privacy":"expiring","expiresAt":99999999999999999999}`, `{"privacy":"expiring","expiresAt":1e30}`, `{"overlapSeconds":1e1}`}))
	case 4:
		depth := 30 + s.IntN(6)
		return []byte(`{"url":"https://example.com","x":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "}")
	case 5:
		if s.IntN(10) == 0 {
			return []byte(`{"url":"https://example.com/` + strings.Repeat("a", 1<<20) + `"}`)
		}
	}
	return b
}

// spoil makes one member invalid: it changes the type, makes the value too long, sets it to null,
// or removes it.
func (s *source) spoil(m map[string]any) {
	names := slices.Sorted(maps.Keys(m))
	if len(names) == 0 {
		m[s.word(4)] = s.junk(3)
		return
	}
	name := pick(s, names)
	switch s.IntN(5) {
	case 0:
		delete(m, name)
	case 1:
		m[name] = nil
	case 2:
		m[name] = s.text(pick(s, []int{0, 1, 101, 257, 501, 1001, 2049, 8193}))
	default:
		m[name] = s.junk(3)
	}
}

func (s *source) junk(depth int) any {
	switch n := s.IntN(10); {
	case n == 0:
		return nil
	case n == 1:
		return s.IntN(2) == 0
	case n == 2:
		return pick(s, []float64{0, -1, 1.5, 1e15, 1e300, 9007199254740993, -8.64e15, 8.64e15 + 1})
	case n == 3 && depth > 0:
		return []any{s.junk(depth - 1), s.junk(depth - 1)}
	case n == 4 && depth > 0:
		return map[string]any{s.word(3): s.junk(depth - 1), s.text(3): s.junk(depth - 1)}
	default:
		return s.text(s.IntN(40))
	}
}

// filled returns v without nulls in lists. The library that validates requests rejects such nulls
// even if the schema allows them.
func filled(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	out := []any{}
	for _, e := range list {
		if e != nil {
			out = append(out, filled(e))
		}
	}
	return out
}

// value generates a value that the schema allows and that fits the field's name.
func (s *source) value(doc map[string]any, schema any, name string, depth int) any {
	m, _ := schema.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		return s.value(doc, dig(doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...), name, depth)
	}
	if any, ok := m["anyOf"].([]any); ok {
		if s.IntN(12) == 0 {
			return filled(s.junk(2))
		}
		return s.value(doc, any[0], name, depth)
	}
	if enum, ok := m["enum"].([]any); ok {
		return pick(s, enum)
	}
	switch t := s.kind(m["type"]); t {
	case "object":
		return s.object(doc, m, depth)
	case "array":
		n := s.IntN(4) + 1
		if name == "urls" {
			n = pick(s, []int{1, 2, 3, 3, 10, 100, 0, 101})
		}
		out := make([]any, n)
		for i := range out {
			if out[i] = s.value(doc, m["items"], name, depth+1); m["x-item-errors"] == true && s.IntN(12) == 0 {
				out[i] = s.junk(2)
			}
		}
		return out
	case "string":
		return s.stringFor(name, m)
	case "integer", "number":
		return s.number(name, t)
	case "boolean":
		return s.IntN(2) == 0
	default:
		return nil
	}
}

func (s *source) object(doc, m map[string]any, depth int) any {
	out := map[string]any{}
	props, _ := m["properties"].(map[string]any)
	required, _ := m["required"].([]any)
	for _, k := range slices.Sorted(maps.Keys(props)) {
		if slices.Contains(required, any(k)) || s.IntN(3) == 0 {
			out[k] = s.value(doc, props[k], k, depth+1)
		}
	}
	if values, ok := m["additionalProperties"].(map[string]any); ok { // an object with arbitrary names
		for range 1 + s.IntN(3) {
			out[s.word(3)] = s.value(doc, values, "", depth+1)
		}
	}
	if least, _ := m["minProperties"].(float64); least > 0 && len(out) == 0 {
		name := pick(s, slices.Sorted(maps.Keys(props)))
		out[name] = s.value(doc, props[name], name, depth+1)
	}
	// Respect the constraints between fields. Otherwise creating a video or link would never
	// succeed.
	if to, ok := out["redirectType"]; ok && to != nil && s.IntN(4) > 0 {
		delete(out, "password")
		delete(out, "maxClicks")
	}
	switch out["privacy"] {
	case "password":
		delete(out, "expiresAt")
		out["password"] = s.text(12)
	case "expiring":
		delete(out, "password")
		out["expiresAt"] = time.Now().Add(time.Hour).UnixMilli()
	case "public", "unlisted":
		if s.IntN(4) > 0 {
			delete(out, "password")
			delete(out, "expiresAt")
		}
	}
	return out
}

func (s *source) kind(t any) string {
	if list, ok := t.([]any); ok {
		t = pick(s, list)
	}
	name, _ := t.(string)
	return name
}

func (s *source) number(name, kind string) any {
	switch name {
	case "expiresAt", "startsAt", "from", "until":
		v := pick(s, []float64{0, -1, 1000, 1.8e12, 4102444800000, 8.64e15, 8.64e15 + 2})
		if kind == "number" && s.IntN(4) == 0 {
			return v + 0.5
		}
		return int64(v)
	case "percent":
		return pick(s, []int{0, 1, 50, 99, 100, -1})
	case "maxClicks":
		return pick(s, []int64{1, 10, 1e9, 1e9 + 1, 0, -1})
	case "overlapSeconds":
		return pick(s, []int{0, 1, 3600, 604800})
	}
	return s.IntN(1000)
}

func (s *source) stringFor(name string, m map[string]any) string {
	switch name {
	case "url", "ogImage", "expiredUrl":
		return pick(s, []string{
			"https://example.com/" + s.word(8), "http://example.com:8080/a?b=c#d", "HTTPS://EXAMPLE.COM/%7Euser", "https://b\u00fccher.example/\u00fc?q=\u00fc",
			"https://example.com/" + url.PathEscape(s.text(10)), "http://[2001:db8::1]/", "http://192.0.2.1/", "https://example.com/" + s.text(8),
			"http:///x", "ftp://example.com", "javascript:alert(1)", "https://user:pass@example.com", "https://example.com:99999", "//example.com", "https://", "http://0x7f.1/", "https://exa\u200bmple.com", "http://a..b/", "https://xn--/",
		})
	case "slug":
		return pick(s, []string{s.word(8), s.word(8), s.word(1), s.word(100), "a.b-c_d", fmt.Sprint("shared", s.IntN(20)), "api", "Robots.TXT", "-x", ".x", "a b", "\u00fc", s.word(101), "", "a/b", "a%2fb", "a+"})
	case "expiresAt", "startsAt", "from", "until", "at":
		return pick(s, []string{"2027-01-01", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00.123+02:00", "Nov 20 2027", "20 Nov 2027 10:00 GMT", "tomorrow", "", "1790000000000", "2026-02-30", "-000000-01-01T00:00:00Z", s.text(10), strings.Repeat("(", 500)})
	case "country":
		return pick(s, []string{"DE", "at", "XX", "D", "DEU", "", s.text(2)})
	case "language":
		return pick(s, []string{"de", "pt-BR", "DE-at", "zh-Hant-TW", "x", "de_DE", "", "de-AT,de;q=0.9,*;q=0.1", s.text(10), strings.Repeat("a-", 200)})
	case "path":
		return pick(s, []string{"/a/b", "/", "//", "/..", "/%2f", "a", "", "/" + s.text(10), "/" + strings.Repeat("a", 3000)})
	case "hostname":
		return pick(s, []string{strings.ToLower(s.word(8)) + ".fuzz.invalid", s.word(6) + ".Fuzz.Invalid", "localhost", "192.0.2.1", "*.example.com", "example.com:80", "a..b", strings.Repeat("a", 64) + ".example", "b\u00fccher.example", "-a.example", "example.com.", "_x.example"})
	case "domainId":
		return pick(s, []string{"dom_0000000000000000", s.word(20), s.text(10), ""})
	}
	limit := 40
	if v, ok := m["maxLength"].(float64); ok && s.IntN(5) == 0 {
		limit = int(v)
		return strings.Repeat(pick(s, []string{"x", "\u00fc", "\U0001f600"}), limit)
	}
	return s.text(1 + s.IntN(limit))
}

// Err returns the report as an error. It returns nil if there were no faults and every operation
// was called.
func (r *FuzzReport) Err() error {
	if r.FaultsTotal > 0 {
		return errors.New(r.String())
	}
	if want := len(apispec.Load().Routes()); len(r.Operations) < want && r.Requests >= want*20 {
		return fmt.Errorf("only %d of %d operations were called", len(r.Operations), want)
	}
	return nil
}
