package backup

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// The state is sent as one multipart message: records, index, the bytes of each object that the
// receiver does not have, and end. Without end, the message is incomplete.
const (
	partHeader = "Part"
	atHeader   = "At"   // on the records part: the time of the state
	blobHeader = "Blob" // on a blob part: the id of the blob

	partRecords = "records"
	partIndex   = "index"
	partBlob    = "blob"
	partEnd     = "end"
)

// maxHave bounds the list of the receiver's objects, in bytes. It is enough for two million
// objects.
const maxHave = 64 << 20

// stalled is how long one side waits for the other before it gives up: a source for a receiver that
// does not read, and a receiver for a source that does not send anything. Without this limit, a
// hanging receiver would keep deleted bytes on the disk forever, and a hanging source would stop
// all backups.
const stalled = 2 * time.Minute

// Source is a running local cloud.
type Source struct {
	Records *firestore.Server
	Objects *storage.Server
	Tokens  guard.Tokens // required from callers
	// In-flight requests are aborted when Stop is done, so they do not delay the server's shutdown.
	Stop context.Context
}

// Handler serves the current state to [Take]. The request is a POST with the ids of the objects that
// the caller already has, one per line.
func (s *Source) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !guard.OwnHost(r.Host):
			http.Error(w, "This address does not serve this host name.", http.StatusMisdirectedRequest)
			return
		case !s.Tokens.Required() || !s.Tokens.Accept(r.Header.Get("Authorization")):
			http.Error(w, "A backup requires this server's bearer token.", http.StatusUnauthorized)
			return
		case r.Method != http.MethodPost:
			http.Error(w, "Use POST.", http.StatusMethodNotAllowed)
			return
		}
		have, err := readLines(http.MaxBytesReader(w, r.Body, maxHave))
		if err != nil {
			http.Error(w, "Cannot read the list of objects.", http.StatusBadRequest)
			return
		}
		ctx, stop := context.WithCancel(r.Context())
		defer stop()
		defer context.AfterFunc(s.Stop, stop)()
		out := &patient{ctx, w, http.NewResponseController(w)}
		m := multipart.NewWriter(out)
		w.Header().Set("Content-Type", m.FormDataContentType())
		w.Header().Set("Connection", "close") // otherwise the last write's deadline would outlive the response
		if err := s.send(ctx, m, have); err != nil {
			slog.WarnContext(ctx, "sending a backup failed", "error", err)
			panic(http.ErrAbortHandler) // the receiver must not mistake a partial backup for a complete one
		}
	})
}

// patient is a response writer that waits for a slow receiver, but not for one that stopped
// reading.
type patient struct {
	ctx  context.Context
	w    io.Writer
	conn *http.ResponseController
}

func (p *patient) Write(b []byte) (int, error) {
	if err := p.ctx.Err(); err != nil {
		return 0, err
	}
	_ = p.conn.SetWriteDeadline(time.Now().Add(stalled)) // fails in tests, where the response has no deadline
	return p.w.Write(b)
}

func readLines(r io.Reader) (map[string]bool, error) {
	lines := map[string]bool{}
	in := bufio.NewScanner(r)
	for in.Scan() {
		lines[in.Text()] = true
	}
	return lines, in.Err()
}

// send writes the current state to m.
func (s *Source) send(ctx context.Context, m *multipart.Writer, have map[string]bool) error {
	var records *firestore.Snapshot
	objects, err := s.Objects.Snapshot(func() (err error) {
		records, err = s.Records.Snapshot()
		return err
	})
	if err != nil {
		return err
	}
	defer objects.Close()
	defer func() { _ = records.Close() }() // opened only for reading
	if err := sendRecords(ctx, m, records); err != nil {
		return fmt.Errorf("send records: %w", err)
	}
	_ = records.Close() // close it before sending the bytes, which may take hours
	blobs, err := sendIndex(m, objects, have)
	if err != nil {
		return fmt.Errorf("send the index of objects: %w", err)
	}
	for _, b := range blobs {
		if err := sendBlob(m, objects, b); err != nil {
			return fmt.Errorf("send %s: %w", b.ID, err)
		}
	}
	if _, err := m.CreatePart(textproto.MIMEHeader{partHeader: {partEnd}}); err != nil {
		return err
	}
	return m.Close()
}

func sendRecords(ctx context.Context, m *multipart.Writer, sn *firestore.Snapshot) error {
	part, err := m.CreatePart(textproto.MIMEHeader{partHeader: {partRecords}, atHeader: {sn.At().Format(time.RFC3339Nano)}})
	if err != nil {
		return err
	}
	return packed(part, func(w io.Writer) error {
		return sn.Documents(ctx, func(d *pb.Document) error {
			_, err := protodelim.MarshalTo(w, d)
			return err
		})
	})
}

// sendIndex returns the objects that the receiver does not have.
func sendIndex(m *multipart.Writer, sn *storage.Snapshot, have map[string]bool) (missing []storage.Blob, err error) {
	part, err := m.CreatePart(textproto.MIMEHeader{partHeader: {partIndex}})
	if err != nil {
		return nil, err
	}
	err = packed(part, func(w io.Writer) error {
		lines := json.NewEncoder(w)
		return sn.Entries(func(e storage.Entry) error {
			b, ok, err := e.Blob()
			if err != nil {
				return err
			}
			if ok && !have[b.ID] {
				missing = append(missing, b)
			}
			return lines.Encode(e)
		})
	})
	return missing, err
}

func sendBlob(m *multipart.Writer, sn *storage.Snapshot, b storage.Blob) error {
	f, err := sn.Open(b)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened only for reading
	part, err := m.CreatePart(textproto.MIMEHeader{partHeader: {partBlob}, blobHeader: {b.ID}})
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(part, struct{ io.Reader }{f}, make([]byte, 256<<10))
	return err
}

// packed compresses what fill writes.
func packed(w io.Writer, fill func(io.Writer) error) error {
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // cannot fail because the level is valid
	buf := bufio.NewWriterSize(z, 64<<10)
	if err := fill(buf); err != nil {
		return err
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	return z.Close()
}
