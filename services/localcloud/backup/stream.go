package backup

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// Copier receives the contents of a source. Its functions are called in this order: Record for each
// document, Entry for each entry of the index, and Blob for each object whose bytes the receiver
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
	s, err := connect(ctx, url, token, have)
	if err != nil {
		return err
	}
	defer func() { _ = s.body.Close() }() // opened only for reading
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

type stream struct {
	body  io.Closer
	parts *multipart.Reader
}

func connect(ctx context.Context, url, token string, have []string) (*stream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(strings.Join(have, "\n")))
	if err != nil {
		return nil, fmt.Errorf("reach the running server: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req) // no time limit: there may be many bytes
	if err != nil {
		return nil, fmt.Errorf("reach the running server: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // best effort: the status alone is enough
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s answered %s: %s", url, resp.Status, strings.TrimSpace(string(text)))
	}
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s is not the backup address of a server", url)
	}
	return &stream{resp.Body, multipart.NewReader(bufio.NewReaderSize(resp.Body, 256<<10), params["boundary"])}, nil
}

// each calls take with each part. It returns after the last part, partEnd.
func (s *stream) each(take func(kind string, part *multipart.Part) error) error {
	for {
		part, err := s.parts.NextPart()
		if err != nil {
			return fmt.Errorf("the server ended the backup early: %w", err)
		}
		kind := part.Header.Get(partHeader)
		switch kind {
		case partRecords, partIndex, partBlob, partEnd:
		default:
			return fmt.Errorf("this program does not support the part %q; use the same version as the server", kind)
		}
		if err := take(kind, part); err != nil || kind == partEnd {
			return err
		}
	}
}

func timeOf(part *multipart.Part) (time.Time, error) {
	return time.Parse(time.RFC3339Nano, part.Header.Get(atHeader))
}
