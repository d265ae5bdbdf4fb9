package storage

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
)

// chunkUnit is the unit of chunk sizes. Every chunk except the last is a multiple of it.
const chunkUnit = 256 << 10

// sessionRecord is a resumable session as stored in the index. It describes only acknowledged data.
type sessionRecord struct {
	Object   object    `json:"object"`
	Cond     cond      `json:"cond"`
	Min      int64     `json:"min"`
	Max      int64     `json:"max"`
	MD5      string    `json:"md5,omitempty"`
	CRC      string    `json:"crc,omitempty"`
	JSON     bool      `json:"json,omitempty"` // belongs to the JSON API
	Started  time.Time `json:"started"`
	Blob     string    `json:"blob"` // its file in tmp/
	Size     int64     `json:"size"` // acknowledged and synced
	MD5State []byte    `json:"md5State,omitempty"`
	CRCState []byte    `json:"crcState,omitempty"`
	Done     bool      `json:"done,omitempty"`
	Result   *object   `json:"result,omitempty"`
}

// session is a session with in-flight requests. It consists of the session's record and the upload
// in progress.
type session struct {
	id    string
	users int // number of requests that use the session; guarded by sessions.mu
	ended atomic.Bool

	mu  sync.Mutex
	rec sessionRecord
	up  *upload // the file is open only during a request

	front sync.Mutex
	cut   func()    // ends the body of the request that holds mu
	moved time.Time // when that body last delivered bytes
	kept  int64     // the acknowledged size, for queries during that request
}

// sessions manages the resumable uploads. Between requests, a session consists only of a record in
// the index and a file in tmp/. A session that never received a byte does not have a file.
type sessions struct {
	st    *store
	clock func() time.Time

	mu   sync.Mutex
	live map[string]*session // sessions with an in-flight request
}

// sessionLife is the lifetime of a resumable session, as in production.
const sessionLife = 7 * 24 * time.Hour

// doneLife is how long a finished session returns its object, for clients that did not receive the
// response.
const doneLife = time.Hour

// keepEvery is the number of bytes that one request may deliver before they are made durable. After
// a crash, a client that was sending a whole file in one request can resume after the durable
// bytes. A query for the offset counts only these bytes.
const keepEvery = 32 << 20

// busyFor is how long a request counts as active after it last received bytes. A query during that
// time does not end the request.
const busyFor = 2 * time.Second

// start records a session and returns its ID, which is the credential for all later requests.
func (s *sessions) start(w wish, lo, hi, expect int64, isJSON bool) (string, error) {
	if err := checkName(w.object.Name); err != nil {
		return "", err
	}
	if err := s.st.room.check(isJSON, expect); err != nil {
		return "", err
	}
	u := newSums(s.st, randomHex(16))
	ses := &session{id: randomHex(32), up: u, rec: sessionRecord{Object: w.object, Cond: w.cond, Min: lo, Max: hi, MD5: w.md5, CRC: w.crc,
		JSON: isJSON, Started: s.clock().UTC(), Blob: u.blob}}
	return ses.id, ses.save(s.st, true)
}

// save makes the session's current length durable. If first is set, save also checks that the
// bucket exists. Otherwise it checks that the session still exists.
func (ses *session) save(st *store, first bool) error {
	md5State, crcState, err := ses.up.state()
	if err != nil {
		return fmt.Errorf("cannot save the session: %w", err)
	}
	rec := ses.rec
	rec.Size, rec.MD5State, rec.CRCState = ses.up.n, md5State, crcState
	err = st.update(false, func(t *bolt.Tx) error {
		if first {
			if _, err := lookup(t, rec.Object.Bucket, rec.Object.Name); err != nil {
				return err
			}
		} else if t.Bucket(inSessions).Get([]byte(ses.id)) == nil {
			return noSession() // the session was cancelled
		}
		return putJSON(t, inSessions, []byte(ses.id), rec)
	})
	if err == nil {
		ses.rec = rec
		ses.front.Lock()
		ses.kept = rec.Size
		ses.front.Unlock()
	}
	return err
}

func noSession() error { return fail(404, "NoSuchUpload", "The requested upload was not found.") }

// find returns the session that other requests are using. If no request is using it, find loads it
// from the index. The session's file is truncated to the acknowledged length when it is next
// opened. The caller releases the session with leave.
func (s *sessions) find(id string) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses := s.live[id]; ses != nil { // a session in use does not expire
		ses.users++
		return ses, nil
	}
	var rec *sessionRecord
	err := s.st.db.View(func(t *bolt.Tx) (err error) {
		rec, err = getJSON[sessionRecord](t, inSessions, []byte(id))
		return err
	})
	if err != nil {
		return nil, err
	}
	if rec == nil || s.clock().After(rec.Started.Add(sessionLife)) {
		return nil, noSession()
	}
	ses := &session{id: id, users: 1, rec: *rec, kept: rec.Size}
	if !rec.Done {
		if ses.up, err = s.st.reopen(*rec); err != nil {
			return nil, err
		}
	}
	s.live[id] = ses
	return ses, nil
}

// leave releases a session. Bytes that the last request did not make durable are discarded.
func (s *sessions) leave(ses *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses.users--; ses.users == 0 {
		delete(s.live, ses.id)
	}
}

// reopen restores an upload from its record. Its file is not opened.
func (s *store) reopen(rec sessionRecord) (*upload, error) {
	u := newSums(s, rec.Blob)
	u.own = rec.JSON
	if err := u.md5.(encoding.BinaryUnmarshaler).UnmarshalBinary(rec.MD5State); err != nil {
		return nil, fmt.Errorf("cannot restore the checksum of a session: %w", err)
	}
	if err := u.crc.(encoding.BinaryUnmarshaler).UnmarshalBinary(rec.CRCState); err != nil {
		return nil, fmt.Errorf("cannot restore the checksum of a session: %w", err)
	}
	u.n = rec.Size
	if u.n == 0 {
		return u, nil // the session has no file yet
	}
	if fi, err := os.Stat(s.temp(rec.Blob)); err != nil || fi.Size() < rec.Size {
		return nil, noSession() // the file is lost; as in production, the client must start over
	}
	return u, nil
}

// drop deletes a session and its file.
func (s *sessions) drop(id, blob string) error {
	err := s.st.update(false, func(t *bolt.Tx) error { return t.Bucket(inSessions).Delete([]byte(id)) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	if ses := s.live[id]; ses != nil {
		ses.ended.Store(true) // tells requests that are waiting for the session
	}
	s.mu.Unlock()
	s.st.discard(s.st.temp(blob))
	return nil
}

// expire drops expired sessions, and finished ones after doneLife.
func (s *sessions) expire() error {
	// Collect first and drop afterwards because drop waits for the writer, and a writer that must
	// grow the index waits until every view has ended.
	old := map[string]string{}
	var unreadable error
	err := s.st.db.View(func(t *bolt.Tx) error {
		return t.Bucket(inSessions).ForEach(func(k, v []byte) error {
			var rec sessionRecord
			if err := json.Unmarshal(v, &rec); err != nil {
				unreadable = errors.Join(unreadable, fmt.Errorf("cannot read the session %.8s…: %w", k, err))
				return nil
			}
			now := s.clock()
			if now.After(rec.Started.Add(sessionLife)) || rec.Done && rec.Result != nil && now.After(rec.Result.Created.Add(doneLife)) {
				old[string(k)] = rec.Blob
			}
			return nil
		})
	})
	for id, blob := range old {
		err = errors.Join(err, s.drop(id, blob))
	}
	return errors.Join(err, unreadable)
}

// take locks the session for one request. It ends the previous request because a client that sends
// a new request has given up on the previous one, which may hang on a dead connection for a long
// time.
func (ses *session) take(w http.ResponseWriter, r *http.Request) (release func()) {
	ses.front.Lock()
	if ses.cut != nil {
		ses.cut()
	}
	ses.front.Unlock()
	ses.mu.Lock()
	rc := http.NewResponseController(w)
	ses.front.Lock()
	ses.cut, ses.moved = func() { _ = rc.SetReadDeadline(time.Unix(1, 0)) }, time.Now()
	ses.front.Unlock()
	r.Body = pulse{r.Body, ses}
	return func() {
		ses.front.Lock()
		ses.cut = nil
		ses.front.Unlock()
		ses.mu.Unlock()
	}
}

// pulse records when a body last delivered bytes.
type pulse struct {
	io.ReadCloser
	ses *session
}

func (p pulse) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	if n > 0 {
		p.ses.front.Lock()
		p.ses.moved = time.Now()
		p.ses.front.Unlock()
	}
	return n, err
}

// underway returns the acknowledged size and reports whether another request is delivering bytes.
func (ses *session) underway() (kept int64, busy bool) {
	ses.front.Lock()
	defer ses.front.Unlock()
	return ses.kept, ses.cut != nil && time.Since(ses.moved) < busyFor
}

// contentRange is an upload's parsed Content-Range. last and total are negative if the client
// did not set them.
type contentRange struct {
	query       bool // "bytes */…" is a query for the offset, without bytes
	first, last int64
	total       int64
}

// parseContentRange parses the formats for resumable uploads: "bytes 0-99/100", "bytes 0-99/*",
// "bytes 0-*/100", "bytes 0-*/*", "bytes */100", "bytes */*". Without the header, the range is the
// whole object.
func parseContentRange(v string) (contentRange, error) {
	c := contentRange{last: -1, total: -1}
	if v == "" {
		return c, nil
	}
	bad := fail(400, "InvalidArgument", "Invalid Content-Range: %q", v)
	rest, unit := strings.CutPrefix(v, "bytes ")
	span, total, ok := strings.Cut(rest, "/")
	if !unit || !ok {
		return c, bad
	}
	if total != "*" {
		if c.total, ok = digits(total); !ok {
			return c, bad
		}
	}
	if span == "*" {
		c.query = true
		return c, nil
	}
	first, last, ok := strings.Cut(span, "-")
	if !ok {
		return c, bad
	}
	if c.first, ok = digits(first); !ok {
		return c, bad
	}
	if last == "*" {
		return c, nil
	}
	if c.last, ok = digits(last); !ok || c.last < c.first || c.total >= 0 && c.last >= c.total {
		return c, bad
	}
	return c, nil
}

func digits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n <= maxObject
}

// final reports whether the bytes up to last complete the object.
func (c contentRange) final() bool { return c.last < 0 || c.last+1 == c.total }

// resume handles one request in a session: more bytes, a query for the offset, or the end of the
// session. bucketName and name come from an XML session URI. They are empty for the JSON API.
func (s *Server) resume(w http.ResponseWriter, r *http.Request, id, bucketName, name string) error {
	ses, err := s.sessions.find(id)
	if err != nil {
		return err
	}
	defer s.sessions.leave(ses)
	// A query does not end a request that is making progress. The response contains the offset that
	// would survive a crash.
	if r.Header.Get("Content-Range") == "bytes */*" && r.Method == http.MethodPut {
		if kept, busy := ses.underway(); busy {
			return ses.incomplete(w, r, kept)
		}
	}
	release := ses.take(w, r)
	defer release()
	rec := &ses.rec
	if ses.ended.Load() {
		return noSession()
	}
	if rec.JSON != (bucketName == "") || bucketName != "" && (rec.Object.Bucket != bucketName || rec.Object.Name != name) {
		return noSession()
	}
	if s.clock().After(rec.Started.Add(sessionLife)) {
		return noSession()
	}
	switch r.Method {
	case http.MethodDelete:
		if err := s.sessions.drop(id, rec.Blob); err != nil {
			return err
		}
		w.WriteHeader(499)
		return nil
	case http.MethodPut, http.MethodPost:
	default:
		return fail(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
	}
	if rec.Done {
		return ses.finished(w)
	}
	c, err := parseContentRange(r.Header.Get("Content-Range"))
	if err != nil {
		return err
	}
	if c.total > rec.Max { // reject the upload now rather than after its bytes have arrived
		return errors.Join(inRange(c.total, rec.Min, rec.Max), s.sessions.drop(id, rec.Blob))
	}
	// A query does not need the file unless it also completes the upload.
	if !c.query || c.total == ses.up.n {
		if err := ses.open(); err != nil {
			return err
		}
		defer func() { _ = ses.up.f.Close() }() // all acknowledged bytes are synced
	}
	complete, err := s.absorb(ses, r, c)
	if err != nil {
		return err
	}
	if !complete {
		if err := ses.keep(s.st); err != nil {
			return err
		}
		return ses.incomplete(w, r, ses.up.n)
	}
	if err := inRange(ses.up.n, rec.Min, rec.Max); err != nil {
		return errors.Join(err, s.sessions.drop(id, rec.Blob))
	}
	o, err := s.st.commit(ses.up, wish{object: rec.Object, cond: rec.Cond, md5: rec.MD5, crc: rec.CRC, session: id})
	if err != nil {
		if refused(err) {
			return errors.Join(err, s.sessions.drop(id, rec.Blob))
		}
		return err
	}
	rec.Done, rec.Result = true, o
	return ses.finished(w)
}

// open prepares the session's file for appending after the acknowledged bytes. Any bytes after
// these come from a failed request.
func (ses *session) open() error {
	flags := os.O_WRONLY
	if ses.rec.Size == 0 {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(ses.up.s.temp(ses.rec.Blob), flags, 0o600)
	if err == nil {
		if err = f.Truncate(ses.up.n); err == nil {
			_, err = f.Seek(ses.up.n, io.SeekStart)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot open the session's file: %w", err)
	}
	ses.up.f = f
	return nil
}

// keep makes the received bytes durable. It must return before the client receives a response.
func (ses *session) keep(st *store) error {
	if ses.up.n == ses.rec.Size {
		return nil
	}
	if err := ses.up.f.Sync(); err != nil {
		return fmt.Errorf("cannot sync the session's file: %w", err)
	}
	return ses.save(st, false)
}

// absorb stores the bytes of one request and reports whether they complete the object.
func (s *Server) absorb(ses *session, r *http.Request, c contentRange) (complete bool, err error) {
	u := ses.up
	if c.query {
		return c.total >= 0 && c.total == u.n, nil
	}
	if c.first > u.n {
		return false, nil // after a gap, the response contains the offset from which to resume
	}
	size := int64(-1) // the body's size, if the client sends it
	if c.last >= 0 {
		size = c.last - c.first + 1
	} else if c.total >= 0 {
		size = c.total - c.first
	}
	if size >= 0 && r.ContentLength >= 0 && r.ContentLength != size {
		return false, fail(400, "InvalidArgument", "Content-Length %d does not match Content-Range.", r.ContentLength)
	}
	if c.total >= 0 && u.n > c.total {
		return false, fail(400, "InvalidArgument", "The session already has %d bytes, which is more than the total of %d.", u.n, c.total)
	}
	skip := u.n - c.first // these bytes are already stored
	if size >= 0 {
		skip = min(skip, size)
	}
	if _, err := io.CopyN(io.Discard, r.Body, skip); err != nil {
		return false, ses.broken(s.st, err)
	}
	if size >= 0 {
		if err := s.st.room.check(u.own, size-skip); err != nil {
			return false, err
		}
	}
	room := ses.rec.Max + 1 - u.n
	if size >= 0 {
		end := c.first + size
		if !c.final() {
			end -= end % chunkUnit // every chunk except the last is stored in whole units
		}
		room = min(room, max(end-u.n, 0))
	}
	for room > 0 {
		before := u.n
		if err := u.fill(r.Body, min(room, keepEvery)); err != nil {
			return false, ses.broken(s.st, err)
		}
		got := u.n - before
		if room -= got; got < keepEvery || room <= 0 {
			break // the body has ended, or the caller makes the rest durable
		}
		if err := ses.keep(s.st); err != nil {
			return false, err
		}
	}
	if u.n > ses.rec.Max {
		return true, nil // the caller reports the error
	}
	if size >= 0 && c.final() && u.n < c.first+size {
		return false, ses.broken(s.st, io.ErrUnexpectedEOF)
	}
	if c.final() {
		return true, nil
	}
	_, err = io.Copy(io.Discard, r.Body)
	return false, err
}

// broken makes the bytes of an interrupted request durable, so the client can resume after them.
func (ses *session) broken(st *store, err error) error {
	if disk := (*diskError)(nil); errors.As(err, &disk) && refused(err) {
		return errors.Join(err, ses.keep(st)) // the disk is full; keep the stored bytes so the client can resume later
	}
	if refused(err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.Join(fail(400, "IncompleteBody", "The request body ended early."), ses.keep(st))
	}
	return err
}

func (ses *session) incomplete(w http.ResponseWriter, r *http.Request, n int64) error {
	if n > 0 {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", n-1))
	}
	w.Header().Set("X-GUploader-UploadID", ses.id)
	if r.Header.Get("X-GUploader-No-308") != "" { // Go's client sends this header because its HTTP library would follow a 308
		w.Header().Set("X-Http-Status-Code-Override", "308")
		return nil
	}
	w.WriteHeader(http.StatusPermanentRedirect)
	return nil
}

func (ses *session) finished(w http.ResponseWriter) error {
	o := ses.rec.Result
	o.headers(w.Header())
	if ses.rec.JSON {
		return writeJSON(w, o.resource())
	}
	return nil
}
