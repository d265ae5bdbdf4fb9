package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"filippo.io/age"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// Target is where a restore writes. It must be empty.
type Target struct {
	Records string             // path of the data file
	Indexes *firestore.Indexes // as in firestore.Options
	Objects storage.Options    // only Dir and ObjectsDir are used
	// Edit may change a document before it is restored, or leave it out by returning false.
	Edit func(*pb.Document) bool
	// Finish, if not nil, is called after everything has been written and before a server can open
	// the target. It may change the records.
	Finish func(context.Context, *firestore.Server) error
	// Token is the token for the server that is passed to Finish.
	Token string
	// Damaged is called for each object whose bytes in the backup are damaged. The object is left
	// out. If Damaged is nil, such an object stops the restore.
	Damaged func(Damage)
}

// Damage describes an object that cannot be restored.
type Damage struct {
	Object string // BUCKET/NAME
	Err    error  // says which file in the backup is damaged
}

// errDamaged means that a file in a backup is missing, or that its bytes were read and differ from
// those that were written. A failed read does not count as damage, because a retry may succeed.
var errDamaged = errors.New("damaged")

// Restore writes a backup to a target. No server can open the target until everything has been
// written and every checksum has been verified. If Restore fails, the caller must empty the target.
func Restore(ctx context.Context, dir string, m *Manifest, identities []age.Identity, to Target) (err error) {
	release, err := hold(dir, m)
	if err != nil {
		return err
	}
	defer release()
	// Without a TTL sweep, because a document that has expired since must be restored and compared
	// like the others.
	records, err := firestore.Open(firestore.Options{Path: to.Records, Indexes: to.Indexes, Restoring: true, TTLInterval: -1, Token: to.Token})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	objects, err := storage.NewRestore(to.Objects)
	if err != nil {
		return err
	}
	in := reader{dir, m, identities}
	var leaveOut func(storage.Blob, error) error
	if to.Damaged != nil {
		leaveOut = func(b storage.Blob, why error) error {
			to.Damaged(Damage{b.Object, why})
			return objects.LeaveOut(b)
		}
	}
	// Objects first: they are most of the data and the likeliest to be damaged, so a restore that
	// must fail does so before it imports the records.
	err = in.objects(ctx, objects.Entries, objects.Write, leaveOut)
	if err = errors.Join(err, objects.Close()); err != nil {
		return err
	}
	if err := in.records(ctx, func(next func() (*pb.Document, error)) error {
		return records.Import(ctx, m.At, func() (*pb.Document, error) {
			for {
				d, err := next()
				if d == nil || err != nil || to.Edit == nil || to.Edit(d) {
					return d, err
				}
			}
		})
	}); err != nil {
		return err
	}
	if to.Finish != nil {
		if err := to.Finish(ctx, records); err != nil {
			return err
		}
	}
	return records.EndRestore()
}

// Verify reads a whole backup and checks it the way Restore does, but does not write anything. It
// calls damaged, which may be nil, for each damaged object and continues. If any object is damaged,
// Verify returns an error at the end.
func Verify(ctx context.Context, dir string, m *Manifest, identities []age.Identity, damaged func(Damage)) error {
	release, err := hold(dir, m)
	if err != nil {
		return err
	}
	defer release()
	in, lost := reader{dir, m, identities}, 0
	var first error
	err = in.objects(ctx, func([]storage.Entry) error { return nil }, func(b storage.Blob, r io.Reader) error {
		_, err := io.Copy(io.Discard, b.Check(r))
		return err
	}, func(b storage.Blob, why error) error {
		if lost++; first == nil {
			first = why
		}
		if damaged != nil {
			damaged(Damage{b.Object, why})
		}
		return nil
	})
	if err == nil {
		err = in.records(ctx, func(next func() (*pb.Document, error)) error {
			for {
				if d, err := next(); d == nil || err != nil {
					return err
				}
			}
		})
	}
	if err == nil && lost > 0 {
		return fmt.Errorf("%d of %d objects in the backup %s cannot be restored; the first: %w", lost, len(m.Objects), m.Name, first)
	}
	return err
}

// reader reads a backup and checks what it reads.
type reader struct {
	dir        string
	m          *Manifest
	identities []age.Identity
}

// open calls read with the bytes of a file, and then checks its size and checksum.
func (in reader) open(path string, want File, read func(io.Reader) error) error {
	if !filepath.IsLocal(want.Name) { // a manifest from elsewhere must not name other files on this machine
		return fmt.Errorf("%q is %w: it is not a file in the backup", want.Name, errDamaged)
	}
	f, err := os.Open(filepath.Join(path, want.Name))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(path); err != nil { // the whole folder is missing; its disk may not be mounted
			return fmt.Errorf("read the backup %s: %w", in.m.Name, err)
		}
		return fmt.Errorf("%s is %w: it is missing", want.Name, errDamaged)
	}
	if err != nil {
		return fmt.Errorf("read the backup %s: %w", in.m.Name, err)
	}
	defer func() { _ = f.Close() }() // opened only for reading
	raw := &summedReader{r: bufio.NewReaderSize(f, 256<<10), sum: sha256.New()}
	failed := in.plain(raw, read)
	_, _ = io.Copy(io.Discard, raw) // raw records the error
	// Report disk errors first, then damage. Either would explain any other failure.
	if raw.err != nil {
		return fmt.Errorf("read the backup %s: %w. The file may be intact, so run the command again. "+
			"If it still cannot be read, move the file out of the backup; it is then treated as damaged", in.m.Name, raw.err)
	}
	if hex.EncodeToString(raw.sum.Sum(nil)) != want.SHA256 {
		return fmt.Errorf("%s is %w: its checksum differs from the one in the manifest of %s", want.Name, errDamaged, in.m.Name)
	}
	if failed != nil {
		return fmt.Errorf("read %s: %w", want.Name, failed)
	}
	return nil
}

// summedReader reads a file and computes the checksum of the bytes read so far. After an error it
// stops reading because the next read could skip bytes.
type summedReader struct {
	r   io.Reader
	sum hash.Hash
	err error // disk error
}

func (s *summedReader) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.r.Read(p)
	_, _ = s.sum.Write(p[:n]) // never fails
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// plain calls read with the decrypted bytes of raw.
func (in reader) plain(raw io.Reader, read func(io.Reader) error) error {
	if in.m.Recipient == "" {
		return read(raw)
	}
	if len(in.identities) == 0 {
		return fmt.Errorf("it is encrypted for %s; pass that recipient's identity with --identity", in.m.Recipient)
	}
	plain, err := age.Decrypt(raw, in.identities...)
	if err != nil {
		return err
	}
	return read(plain)
}

// entriesAtOnce is the number of index entries that a restore commits together.
const entriesAtOnce = 1000

// objects passes the index to entries and then the bytes of each object to write. If leaveOut is
// not nil, objects calls it for each object with damaged bytes.
func (in reader) objects(
	ctx context.Context, entries func([]storage.Entry) error, write func(storage.Blob, io.Reader) error, leaveOut func(storage.Blob, error) error,
) error {
	files := map[string]File{} // of the objects, by id
	for _, f := range in.m.Objects {
		id, _, _ := strings.Cut(f.Name, ".")
		files[id] = f
	}
	var blobs []storage.Blob
	err := in.open(filepath.Join(in.dir, in.m.Name), in.m.Index, func(r io.Reader) error {
		return unpack(r, func(r *bufio.Reader) (err error) {
			blobs, err = readEntries(r, entries)
			return err
		})
	})
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, ok := files[b.ID]
		if !ok || f.Name != filepath.Base(f.Name) {
			return fmt.Errorf("the manifest of %s does not list the bytes of the object %s", in.m.Name, b.ID)
		}
		err := in.open(filepath.Join(in.dir, objectsDir), f, func(r io.Reader) error { return write(b, r) })
		if errors.Is(err, errDamaged) && leaveOut != nil {
			err = leaveOut(b, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readEntries passes the entries of an index to pass, in groups, and returns the objects' blobs.
func readEntries(r *bufio.Reader, pass func([]storage.Entry) error) (blobs []storage.Blob, err error) {
	var group []storage.Entry
	err = eachEntry(r, func(e storage.Entry) error {
		b, ok, err := e.Blob()
		if err != nil {
			return err
		}
		if ok {
			blobs = append(blobs, b)
		}
		if group = append(group, e); len(group) < entriesAtOnce {
			return nil
		}
		err, group = pass(group), nil
		return err
	})
	if err == nil {
		err = pass(group)
	}
	return blobs, err
}

// records calls use with a function that returns the next document, or nil at the end.
func (in reader) records(ctx context.Context, use func(next func() (*pb.Document, error)) error) error {
	read := int64(0)
	err := in.open(filepath.Join(in.dir, in.m.Name), in.m.Records, func(r io.Reader) error {
		return unpack(r, func(r *bufio.Reader) error {
			return use(func() (*pb.Document, error) {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				d, err := nextDocument(r)
				if d != nil {
					read++
				}
				return d, err
			})
		})
	})
	if err == nil && read != in.m.Documents {
		err = fmt.Errorf("the backup %s contains %d documents, but its manifest says %d", in.m.Name, read, in.m.Documents)
	}
	return err
}
