package storage

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

// These are production's event names.
const (
	eventFinalize = "OBJECT_FINALIZE"
	eventDelete   = "OBJECT_DELETE"
	eventMetadata = "OBJECT_METADATA_UPDATE"
)

// Notify sends changes to objects in the same way as a Pub/Sub push subscription: at least once and
// in no guaranteed order. It retries with increasing pauses, for at most a week, until the receiver
// responds with 102, 200, 201, 202 or 204. An event is recorded in the change's own transaction,
// so a crash cannot lose it.
type Notify struct {
	// URL receives the POST requests.
	URL string
	// Events lists the events to send. The default is OBJECT_FINALIZE, OBJECT_DELETE and
	// OBJECT_METADATA_UPDATE.
	Events []string
	// Subscription is the subscription name that each message contains.
	Subscription string
	// Audience, Issuer and Email are claims in the Authorization header's token. The receiver
	// checks the token against /oauth2/v3/certs of the APIHandler. The default Audience is URL, and
	// the default Issuer is https://accounts.google.com.
	Audience, Issuer, Email string
	// MinBackoff and MaxBackoff bound the pause before a message is sent again. The defaults are
	// one second and one minute.
	MinBackoff, MaxBackoff time.Duration
	// Client sends the messages. The default is a client with a timeout of 10 s.
	Client *http.Client
}

// retention is how long a message is kept if the receiver does not accept it. This is Pub/Sub's
// default.
const retention = 7 * 24 * time.Hour

// note is one recorded event.
type note struct {
	ID    uint64            `json:"id"`
	At    time.Time         `json:"at"`
	Attrs map[string]string `json:"attrs"`
	Data  []byte            `json:"data"`
}

type outbox struct {
	st     *store
	srv    *Server
	n      Notify
	off    bool
	signal chan struct{}

	mu       sync.Mutex
	attempts map[uint64]*attempts // by the note's ID
}

// waiting is a stored note that has not been sent yet.
type waiting struct {
	id     uint64
	record []byte
}

// attempts records the attempts to send one note.
type attempts struct {
	n    int
	next time.Time
	busy bool
}

func openOutbox(s *Server, n *Notify) (*outbox, error) {
	o := &outbox{st: s.st, srv: s, signal: make(chan struct{}, 1), off: n == nil, attempts: map[uint64]*attempts{}}
	if n == nil {
		return o, nil
	}
	o.n = *n
	if o.n.Audience == "" {
		o.n.Audience = o.n.URL
	}
	if o.n.Issuer == "" {
		o.n.Issuer = "https://accounts.google.com"
	}
	if o.n.Email == "" {
		o.n.Email = s.key.Email
	}
	if o.n.Subscription == "" {
		o.n.Subscription = "projects/local/subscriptions/storage"
	}
	if o.n.MinBackoff == 0 {
		o.n.MinBackoff = time.Second
	}
	o.n.MaxBackoff = max(o.n.MaxBackoff, o.n.MinBackoff)
	if n.MaxBackoff == 0 {
		o.n.MaxBackoff = max(time.Minute, o.n.MinBackoff)
	}
	if o.n.Client == nil {
		o.n.Client = &http.Client{Timeout: 10 * time.Second}
	}
	_, err := s.oidc()
	return o, err
}

// add records an event in t. old is the object that o replaces, which production reports as
// deleted.
func (b *outbox) add(t *bolt.Tx, event string, o, old *object) error {
	if b.off {
		return nil
	}
	more := map[string]string{}
	if old != nil {
		more["overwroteGeneration"] = strconv.FormatInt(old.Generation, 10)
		if err := b.record(t, eventDelete, old, map[string]string{"overwrittenByGeneration": strconv.FormatInt(o.Generation, 10)}); err != nil {
			return err
		}
	}
	return b.record(t, event, o, more)
}

func (b *outbox) record(t *bolt.Tx, event string, o *object, attrs map[string]string) error {
	if len(b.n.Events) > 0 && !slices.Contains(b.n.Events, event) {
		return nil
	}
	data, err := json.Marshal(o.resource())
	if err != nil {
		return err
	}
	id, err := t.Bucket(inOutbox).NextSequence()
	if err != nil {
		return err
	}
	at := b.st.clock().UTC()
	attrs["eventType"], attrs["bucketId"], attrs["objectId"] = event, o.Bucket, o.Name
	attrs["objectGeneration"] = strconv.FormatInt(o.Generation, 10)
	attrs["eventTime"], attrs["payloadFormat"] = at.Format(time.RFC3339Nano), "JSON_API_V1"
	attrs["notificationConfig"] = "projects/_/buckets/" + o.Bucket + "/notificationConfigs/1"
	return putJSON(t, inOutbox, binary.BigEndian.AppendUint64(nil, id), note{ID: id, At: at, Attrs: attrs, Data: data})
}

func (b *outbox) wake() {
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// run sends messages until ctx is done. It sends several at a time, so one rejected message does
// not delay the others. Pauses use real time even if a clock is injected, because they protect the
// receiver.
func (b *outbox) run(ctx context.Context) {
	if b.off {
		return
	}
	const parallel = 8
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, parallel)
	for {
		notes, wait, err := b.due(1000)
		if err != nil {
			b.srv.log.Error("storage: cannot read the outbox; retrying", "error", err)
		}
		for _, n := range notes {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			wg.Go(func() {
				defer func() { <-slots; b.wake() }()
				b.tried(n.id, b.deliver(ctx, n))
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-b.signal:
		case <-time.After(wait):
		}
	}
}

// due takes up to limit notes, oldest first, and skips those whose pause has not ended. Skipped
// notes do not count toward limit, so they cannot hide later notes. wait is the time until the
// first pause ends, at most a minute.
func (b *outbox) due(limit int) (notes []waiting, wait time.Duration, err error) {
	wait = time.Minute
	b.mu.Lock()
	defer b.mu.Unlock()
	err = b.st.db.View(func(t *bolt.Tx) error {
		c := t.Bucket(inOutbox).Cursor()
		for k, v := c.First(); k != nil && len(notes) < limit; k, v = c.Next() {
			id := binary.BigEndian.Uint64(k)
			a := b.attempts[id]
			if a == nil {
				a = &attempts{}
				b.attempts[id] = a
			}
			switch pause := time.Until(a.next); {
			case a.busy:
			case pause > 0:
				wait = min(wait, pause)
			default:
				a.busy = true
				notes = append(notes, waiting{id, bytes.Clone(v)})
			}
		}
		return nil
	})
	return notes, wait, err
}

// tried ends an attempt. If the note is not finished, it pauses the note. The pause grows with the
// number of unfinished notes, so up to 6,000 of them are sent at most a hundred times per second in
// total.
func (b *outbox) tried(id uint64, finished bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if finished {
		delete(b.attempts, id)
		return
	}
	a, share := b.attempts[id], min(time.Minute, time.Duration(len(b.attempts))*10*time.Millisecond)
	a.next = time.Now().Add(max(share, min(b.n.MaxBackoff, b.n.MinBackoff<<min(a.n, 16))))
	a.n, a.busy = a.n+1, false
}

// deliver sends one message and reports whether it is finished: accepted and removed, or too old.
func (b *outbox) deliver(ctx context.Context, w waiting) bool {
	var n note
	if err := json.Unmarshal(w.record, &n); err != nil {
		b.srv.log.Error("storage: cannot read a notification; retrying", "id", w.id, "error", err)
		return false
	}
	if b.st.clock().Sub(n.At) > retention {
		b.srv.log.Warn("storage: dropping a notification that the receiver has not accepted for a week", "event", n.Attrs["eventType"], "object", n.Attrs["objectId"])
		return b.remove(w.id)
	}
	if err := b.send(ctx, n); err != nil {
		if ctx.Err() == nil {
			b.srv.log.Debug("storage: the receiver did not accept a notification; retrying", "error", err)
		}
		return false
	}
	return b.remove(w.id)
}

func (b *outbox) remove(id uint64) bool {
	err := b.st.update(false, func(t *bolt.Tx) error {
		return t.Bucket(inOutbox).Delete(binary.BigEndian.AppendUint64(nil, id))
	})
	return err == nil
}

func (b *outbox) send(ctx context.Context, n note) error {
	id := strconv.FormatUint(n.ID, 10)
	published := n.At.Format(time.RFC3339Nano)
	msg, err := json.Marshal(map[string]any{"subscription": b.n.Subscription, "message": map[string]any{
		"data": base64.StdEncoding.EncodeToString(n.Data), "attributes": n.Attrs,
		"messageId": id, "message_id": id, "publishTime": published, "publish_time": published}})
	if err != nil {
		return err
	}
	key, err := b.srv.oidc()
	if err != nil {
		return err
	}
	now := b.st.clock().Unix()
	token, err := key.jwt(map[string]any{"iss": b.n.Issuer, "aud": b.n.Audience, "azp": b.n.Email, "sub": b.n.Email,
		"email": b.n.Email, "email_verified": true, "iat": now, "exp": now + 3600})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.n.URL, bytes.NewReader(msg))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := b.n.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // drain the body so that the connection can be reused
	switch resp.StatusCode {
	case http.StatusProcessing, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return nil
	}
	return fmt.Errorf("the receiver returned %s", resp.Status)
}
