package backup

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// Sealed says where records contain the ids of the keys that sealed their values.
type Sealed struct {
	Collection string
	Field      string // a string, an array of strings, or bytes that begin with the id
	Keys       string // the purpose of the keys
}

// Options configures [Take].
type Options struct {
	Dir       string        // the backup folder
	URL       string        // of [Source.Handler]
	Token     string        // of the source
	Recipient string        // an age recipient (age1…); "" means no encryption
	Keep      time.Duration // older backups are removed; 0 keeps all
	Sealed    []Sealed
	Now       func() time.Time // nil means time.Now

	write  func(*os.File, []byte) (int, error) // replaced by tests
	sync   func(dir string) error              // replaced by tests
	silent time.Duration                       // how long the source may be silent; 0 means stalled
}

// Take copies the current state of a source into a new backup. Then it removes at most two expired
// backups, and the objects that no backup refers to. If Take fails, the earlier backups remain
// intact. If the disk is full, the error says so.
func Take(ctx context.Context, o Options) (*Manifest, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	f, err := openFolder(o.Dir, o.Recipient)
	if err != nil {
		return nil, err
	}
	defer f.close()
	if o.write != nil {
		f.write = o.write
	}
	if o.sync != nil {
		f.sync = o.sync
	}
	m, err := take(ctx, f, o)
	if errors.Is(err, syscall.ENOSPC) {
		return nil, fmt.Errorf("%s is full: free some space and run the backup again. The earlier backups are intact: %w", o.Dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("no backup was made: %w", err)
	}
	if o.Keep == 0 {
		return m, nil
	}
	if m.Left, err = f.prune(m.Name, o.Now().Add(-o.Keep)); err != nil {
		return m, fmt.Errorf("the backup %s is complete, but removing older ones failed: %w", m.Name, err)
	}
	return m, nil
}

func take(ctx context.Context, f *folder, o Options) (*Manifest, error) {
	m := &Manifest{Format: format, Name: o.Now().UTC().Format(nameForm), Recipient: o.Recipient}
	dir, err := f.begin(m.Name)
	if err != nil {
		return nil, err
	}
	copied, newest, err := f.objects()
	if err != nil {
		return nil, err
	}
	m.Order = newest + 1
	stream, err := connect(ctx, o.URL, o.Token, slices.Sorted(maps.Keys(copied)), cmp.Or(o.silent, stalled))
	if err != nil {
		return nil, err
	}
	defer stream.close()
	r := &receiver{folder: f, dir: dir, m: m, sealed: o.Sealed, copied: copied}
	if err := stream.each(r.take); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return m, f.complete(dir, m)
}

// receiver writes what a source sends into the folder.
type receiver struct {
	folder *folder
	dir    string
	m      *Manifest
	sealed []Sealed
	copied map[string]File         // objects in the folder, by id
	wanted map[string]storage.Blob // objects in this backup, by id
}

func (r *receiver) take(kind string, part *multipart.Part) (err error) {
	switch kind {
	case partRecords:
		if r.m.At, err = timeOf(part); err == nil {
			r.m.Records, err = r.both(part, recordsFile, r.readRecords)
		}
	case partIndex:
		r.m.Index, err = r.both(part, indexFile, r.readIndex)
	case partBlob:
		err = r.receiveBlob(part, part.Header.Get(blobHeader))
	case partEnd:
		err = r.finish()
	}
	return err
}

// both stores a compressed part and parses its content at the same time.
func (r *receiver) both(part io.Reader, name string, read func(*bufio.Reader) error) (File, error) {
	out, in := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := unpack(out, read)
		_ = out.CloseWithError(err) // unpack returns nil only at the end, so nothing is written after that
		done <- err
	}()
	stored, err := r.folder.store(r.dir, io.TeeReader(part, in), func(string) string { return name + r.folder.tag })
	_ = in.CloseWithError(err) // a nil error means the end of the data
	return stored, errors.Join(err, <-done)
}

// unpack decompresses bytes and reads them to the end.
func unpack(from io.Reader, read func(*bufio.Reader) error) error {
	z, err := gzip.NewReader(from)
	if err != nil {
		return err
	}
	if err := read(bufio.NewReaderSize(z, 64<<10)); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, from)
	return err
}

func (r *receiver) readRecords(in *bufio.Reader) error {
	keys := map[string]map[string]bool{}
	err := eachDocument(in, func(d *pb.Document) error {
		r.m.Documents++
		for _, s := range r.sealed {
			if collectionOf(d) != s.Collection {
				continue
			}
			for _, id := range KeyIDs(d.GetFields()[s.Field]) {
				if keys[s.Keys] == nil {
					keys[s.Keys] = map[string]bool{}
				}
				keys[s.Keys][id] = true
			}
		}
		return nil
	})
	for name, ids := range keys {
		if r.m.Keys == nil {
			r.m.Keys = map[string][]string{}
		}
		r.m.Keys[name] = slices.Sorted(maps.Keys(ids))
	}
	return err
}

// collectionOf returns the id of a document's collection.
func collectionOf(d *pb.Document) string {
	path := strings.Split(d.GetName(), "/")
	return path[len(path)-2] // names come from the server
}

// idBytes is the length of a key's id at the beginning of a sealed value.
const idBytes = 4

// KeyIDs returns the ids of the keys in v, the value of [Sealed.Field].
func KeyIDs(v *pb.Value) (all []string) {
	if s := v.GetStringValue(); s != "" {
		return []string{s}
	}
	if b := v.GetBytesValue(); len(b) >= idBytes {
		return []string{hex.EncodeToString(b[:idBytes])}
	}
	for _, e := range v.GetArrayValue().GetValues() {
		all = append(all, KeyIDs(e)...)
	}
	return all
}

func eachDocument(in *bufio.Reader, fn func(*pb.Document) error) error {
	for {
		d, err := nextDocument(in)
		if d == nil || err != nil {
			return err
		}
		if err := fn(d); err != nil {
			return err
		}
	}
}

// nextDocument returns nil at the end.
func nextDocument(in *bufio.Reader) (*pb.Document, error) {
	d := &pb.Document{}
	err := (protodelim.UnmarshalOptions{MaxSize: 64 << 20}).UnmarshalFrom(in, d)
	if err == io.EOF { //nolint:errorlint // an end between two documents is io.EOF itself
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a document: %w", err)
	}
	if strings.Count(d.GetName(), "/") < 6 {
		return nil, fmt.Errorf("%q is not the name of a document", d.GetName())
	}
	return d, nil
}

func (r *receiver) readIndex(in *bufio.Reader) error {
	r.wanted = map[string]storage.Blob{}
	return eachEntry(in, func(e storage.Entry) error {
		b, ok, err := e.Blob()
		if ok {
			r.wanted[b.ID] = b
		}
		return err
	})
}

// maxEntry bounds one entry of an index, and maxIndex all of them. Without these limits, a small
// compressed file could fill up memory. Two million objects with long names take less than a third
// of maxIndex.
const maxEntry = 1 << 20

var maxIndex int64 = 4 << 30 // replaced by tests

func eachEntry(in *bufio.Reader, fn func(storage.Entry) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxEntry)
	read := int64(0)
	for lines.Scan() {
		if read += int64(len(lines.Bytes())) + 1; read > maxIndex {
			return fmt.Errorf("the index of objects has more than %d bytes, which is the most this program will read", maxIndex)
		}
		var e storage.Entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("read an index entry: %w", err)
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	err := lines.Err()
	switch {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("the index of objects has an entry of more than %d bytes, which is the most this program will read", maxEntry)
	case err != nil:
		return fmt.Errorf("read an index entry: %w", err)
	}
	return nil
}

func (r *receiver) receiveBlob(part io.Reader, id string) error {
	b, ok := r.wanted[id]
	if !ok {
		return fmt.Errorf("the server sent the object %q, which is not in its index", id)
	}
	stored, err := r.folder.store(filepath.Join(r.folder.path, objectsDir), b.Check(part), func(sha string) string {
		return id + "." + sha + r.folder.tag
	})
	if err != nil {
		return err
	}
	r.copied[id] = stored
	return nil
}

// finish lists the objects in the backup.
func (r *receiver) finish() error {
	if r.m.Records.Name == "" || r.m.Index.Name == "" {
		return errors.New("the server sent no records or no index")
	}
	for _, id := range slices.Sorted(maps.Keys(r.wanted)) {
		f, ok := r.copied[id]
		if !ok {
			return fmt.Errorf("the server did not send the object %s", id)
		}
		r.m.Objects = append(r.m.Objects, f)
	}
	return nil
}
