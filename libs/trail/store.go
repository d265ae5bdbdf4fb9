package trail

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/objectstore"
)

// Store keeps a trail's files: DAY/TIME-ID.jsonl, each with some notes. A file never
// changes, and names are never reused.
type Store interface {
	// Create makes a new file durable before it returns. The time becomes part of its name. If the
	// result is not zero, even with an error, days that are older than [Keep] at that time may be
	// removed.
	Create(ctx context.Context, at time.Time, text []byte) (time.Time, error)
	// List yields the names in order, starting with a day such as "2026-03-01". "" means all days.
	// It also yields names that are not files in a trail, which [Read] reports. After an error with
	// a name, more names may follow.
	List(ctx context.Context, from string) iter.Seq2[string, error]
	// Read returns a file. It fails if the file is larger than any file that this package writes.
	// The error says whether the file is missing.
	Read(ctx context.Context, name string) ([]byte, error)
	// RemoveDay removes a day's files.
	RemoveDay(ctx context.Context, day string) error
	// String returns the trail's location for display.
	String() string
}

const (
	dayForm  = "2006-01-02"
	timeForm = "150405.000000"
	ending   = ".jsonl"
	// largest is the maximum size of a file that is read, in bytes. [mostTogether] notes take about
	// a hundredth of it.
	largest = 32 << 20
)

// nameFor returns a unique name.
func nameFor(at time.Time) (day, file string) {
	return at.Format(dayForm), at.Format(timeForm) + "-" + rand.Text() + ending
}

// dayOf returns the day in a name.
func dayOf(name string) (time.Time, bool) {
	day, _, ok := strings.Cut(name, "/")
	at, err := time.Parse(dayForm, day)
	return at, ok && err == nil
}

// Folder is a trail in a folder. Several processes may write to it.
type Folder string

// OpenFolder returns the trail in a folder. It creates the folder if it does not exist.
func OpenFolder(dir string) (Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("create the trail's folder: %w", err)
	}
	return Folder(dir), nil
}

func (f Folder) String() string { return string(f) }

func (f Folder) path(name string) string { return filepath.Join(string(f), filepath.FromSlash(name)) }

// Create implements [Store]. It does not create the trail's folder, which may be on a disk that is
// not mounted.
func (f Folder) Create(_ context.Context, at time.Time, text []byte) (olderThan time.Time, err error) {
	name, file := nameFor(at)
	day := f.path(name)
	switch err := os.Mkdir(day, 0o700); {
	case err == nil:
		olderThan = at // once a day
	case !errors.Is(err, fs.ErrExist):
		return olderThan, err
	}
	// Sync even if the day exists because the process that created it may have failed or died
	// before this line.
	if err := syncDir(string(f)); err != nil {
		return olderThan, err
	}
	part, err := os.CreateTemp(day, ".new-*") // with mode 0600
	if err != nil {
		return olderThan, err
	}
	_, err = part.Write(text)
	if err = errors.Join(err, part.Sync(), part.Close()); err == nil {
		err = os.Rename(part.Name(), filepath.Join(day, file))
	}
	if err != nil {
		_ = os.Remove(part.Name()) // ignore this error; the earlier one is more useful
		return olderThan, err
	}
	return olderThan, syncDir(day)
}

// syncDir makes the names in a folder durable. Tests replace it.
var syncDir = func(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// List implements [Store].
func (f Folder) List(ctx context.Context, from string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		days, err := os.ReadDir(string(f))
		if err != nil {
			yield(string(f), err)
			return
		}
		for _, d := range days {
			if err := ctx.Err(); err != nil {
				yield(string(f), err)
				return
			}
			if _, ok := dayOf(d.Name() + "/"); ok && d.Name() < from {
				continue
			}
			if !d.IsDir() {
				if !yield(d.Name(), nil) {
					return
				}
				continue
			}
			files, err := os.ReadDir(f.path(d.Name()))
			if err != nil && !yield(d.Name(), err) {
				return
			}
			for _, x := range files {
				if !yield(d.Name()+"/"+x.Name(), nil) {
					return
				}
			}
		}
	}
}

// Read implements [Store]. It returns when ctx is done, even if the disk does not respond.
func (f Folder) Read(ctx context.Context, name string) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1) // so that the goroutine ends even if nobody is waiting any more
	go func() {
		text, err := f.read(name)
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f Folder) read(name string) ([]byte, error) {
	info, err := os.Stat(f.path(name))
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNoFile
	}
	if info.Size() > largest {
		return nil, errTooLarge
	}
	return readFile(f.path(name))
}

// readFile reads a file. Tests replace it.
var readFile = os.ReadFile

// RemoveDay implements [Store].
func (f Folder) RemoveDay(_ context.Context, day string) error { return os.RemoveAll(f.path(day)) }

var (
	errTooLarge = errors.New("is larger than any file in a trail")
	errNoFile   = errors.New("is not a file")
)

// Prefix starts the name of every trail object in a bucket.
const Prefix = "audit/"

// bucket is a trail in a bucket.
type bucket struct {
	objects *objectstore.Store
	name    string
	cleaned string // the last day on which Create allowed old days to be removed
}

// OpenBucket returns the trail in a bucket. The names of its objects start with [Prefix]. name is
// the bucket's name for display. Several processes may write to the bucket.
func OpenBucket(objects *objectstore.Store, name string) Store {
	return &bucket{objects: objects, name: name}
}

func (b *bucket) String() string { return "gs://" + b.name + "/" + Prefix }

// Create implements [Store]. It uses the storage service's clock, not this machine's, to decide
// which days are too old.
func (b *bucket) Create(ctx context.Context, at time.Time, text []byte) (olderThan time.Time, err error) {
	day, file := nameFor(at)
	absent := int64(0)
	o, err := b.objects.Upload(ctx, Prefix+day+"/"+file, bytes.NewReader(text), objectstore.UploadOptions{
		ContentType: "application/jsonl", IfGeneration: &absent,
	})
	if err != nil {
		return olderThan, err
	}
	if today := o.Created.UTC().Format(dayForm); today != b.cleaned {
		b.cleaned, olderThan = today, o.Created.UTC()
	}
	return olderThan, nil
}

// List implements [Store].
func (b *bucket) List(ctx context.Context, from string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for o, err := range b.objects.List(ctx, Prefix) {
			name := strings.TrimPrefix(o.Name, Prefix)
			if _, ok := dayOf(name); err == nil && ok && name < from {
				continue
			}
			if err != nil {
				name = b.String() // tells the reader that the listing failed, rather than one day's file
			}
			if !yield(name, err) {
				return
			}
		}
	}
}

// Read implements [Store].
func (b *bucket) Read(ctx context.Context, name string) ([]byte, error) {
	var text bounded
	_, err := b.objects.Download(ctx, Prefix+name, 0, &text)
	return text.Bytes(), err
}

// RemoveDay implements [Store].
func (b *bucket) RemoveDay(ctx context.Context, day string) error {
	return b.objects.DeletePrefix(ctx, Prefix+day+"/")
}

// bounded is a buffer that accepts at most [largest] bytes.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > largest {
		return 0, errTooLarge
	}
	return b.Buffer.Write(p)
}
