package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// Copier receives the contents of a source. Its functions are called in this order: Record for each
// document, Entry for each entry in the index, and Blob for each object whose bytes the receiver
// does not have.
type Copier struct {
	Record func(*pb.Document) error
	Entry  func(storage.Entry) error
	// Blob reads the bytes of one object. They may be damaged: see [storage.Blob.Check].
	Blob func(id string, bytes io.Reader) error
}

// Copy passes a consistent snapshot of a source to c. have contains the ids of the objects whose
// bytes c already has. If Copy fails, c has not received everything.
func Copy(ctx context.Context, url, token string, have []string, c Copier) error {
	s, err := connect(ctx, url, token, have, stalled)
	if err != nil {
		return err
	}
	defer s.close()
	return s.each(func(kind string, part *multipart.Part) error {
		switch kind {
		case partRecords:
			return unpack(part, func(in *bufio.Reader) error { return eachDocument(in, c.Record) })
		case partIndex:
			return unpack(part, func(in *bufio.Reader) error { return eachEntry(in, c.Entry) })
		case partBlob:
			return c.Blob(part.Header.Get(blobHeader), part)
		}
		return nil
	})
}

// client calls sources. It ignores HTTP_PROXY: a source is on this machine or in the same cluster,
// and a proxy must not receive its data or its token.
var client = &http.Client{Transport: &http.Transport{
	DialContext: (&net.Dialer{Timeout: 10 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
	DisableCompression: true, // the parts are compressed
}}

type stream struct {
	ctx   context.Context // canceled with errSilent when the source is silent
	quit  func()
	quiet *time.Timer
	limit time.Duration // how long the source may be silent
	body  io.ReadCloser
	parts *multipart.Reader
}

// errSilent means that the source did not send anything for too long.
var errSilent = errors.New("the server sent nothing")

// connect requests the state of a source. limit is how long the source may be silent. The request
// as a whole has no time limit, because there may be a lot of data.
func connect(ctx context.Context, url, token string, have []string, limit time.Duration) (_ *stream, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stream{ctx: ctx, quit: func() { cancel(nil) }, limit: limit}
	s.quiet = time.AfterFunc(limit, func() {
		cancel(fmt.Errorf("%w for %v. Check that it is running and that %s is its backup address", errSilent, limit, url))
	})
	defer func() {
		if err != nil {
			s.close()
			err = s.explain(err)
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(strings.Join(have, "\n")))
	if err != nil {
		return nil, fmt.Errorf("reach the running server: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req) //nolint:bodyclose // s.close closes it
	if err != nil {
		return nil, fmt.Errorf("reach the running server: %w", err)
	}
	s.body = resp.Body
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(s, 1<<10)) // best effort: the status alone is enough
		return nil, fmt.Errorf("%s answered %s: %s", url, resp.Status, strings.TrimSpace(string(text)))
	}
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return nil, fmt.Errorf("%s is not the backup address of a server", url)
	}
	s.parts = multipart.NewReader(bufio.NewReaderSize(s, 256<<10), params["boundary"])
	return s, nil
}

// Read reads the response. Only the time inside Read counts as silence because the receiver may be
// slow to store what it has read.
func (s *stream) Read(p []byte) (int, error) {
	s.quiet.Reset(s.limit)
	defer s.quiet.Stop()
	return s.body.Read(p)
}

func (s *stream) close() {
	s.quiet.Stop()
	s.quit()
	if s.body != nil {
		_ = s.body.Close() // opened only for reading
	}
}

// explain replaces the error from a request that was canceled because the source was silent.
func (s *stream) explain(err error) error {
	if why := context.Cause(s.ctx); err != nil && errors.Is(why, errSilent) {
		return why
	}
	return err
}

// each calls take with each part. It returns after the last part, partEnd.
func (s *stream) each(take func(kind string, part *multipart.Part) error) error {
	s.quiet.Stop()
	for {
		part, err := s.parts.NextPart()
		if err != nil {
			return s.explain(fmt.Errorf("the server ended the backup early: %w", err))
		}
		kind := part.Header.Get(partHeader)
		switch kind {
		case partRecords, partIndex, partBlob, partEnd:
		default:
			return fmt.Errorf("this program does not support the part %q; use the same version as the server", kind)
		}
		if err := take(kind, part); err != nil || kind == partEnd {
			return s.explain(err)
		}
	}
}

func timeOf(part *multipart.Part) (time.Time, error) {
	return time.Parse(time.RFC3339Nano, part.Header.Get(atHeader))
}
