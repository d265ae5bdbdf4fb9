package objectstore

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"time"

	"cloud.google.com/go/storage"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/outage"
)

var errStalled = errors.New("transfer has stalled")

// Download writes one generation of an object to w and returns the object. Generation 0 means the
// live generation. Download resumes after a broken or stalled connection. If the error is nil, w
// has received the complete, verified object. Otherwise, discard the output. If the object is
// stored with a Content-Encoding, Download does not read any data and returns ErrEncoded. w never
// receives more than the object's size, even if the server sends more.
func (s *Store) Download(ctx context.Context, object string, generation int64, w io.Writer) (Object, error) {
	ctx, cancel := context.WithTimeout(ctx, s.transfer)
	defer cancel()
	o, err := s.stat(ctx, object, generation)
	if err != nil {
		return Object{}, err
	}
	if o.Encoded() {
		return Object{}, fmt.Errorf("download %q: %w", object, ErrEncoded)
	}
	if err := measure("download", func() error { return s.fetch(ctx, o, w) }); err != nil {
		return Object{}, fmt.Errorf("download %q: %w", object, err)
	}
	return o, nil
}

// DownloadRange writes size bytes of an object, starting at offset, to w. Storage has no checksums
// for parts, so unlike Download, it relies on the integrity of the connection. Use it for a few
// megabytes at most: if the connection breaks, the caller must start again.
func (s *Store) DownloadRange(ctx context.Context, object string, offset, size int64, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, s.stall)
	defer cancel()
	err := measure("download", func() error {
		r, err := s.handle(object, 0).NewRangeReader(ctx, offset, size)
		if err != nil {
			return mapError(err)
		}
		n, err := io.Copy(w, io.LimitReader(r, size))
		_ = r.Close() // Copy has already reported the reader's errors
		if err == nil && n != size {
			err = io.ErrUnexpectedEOF
		}
		return mapError(err)
	})
	if err != nil {
		return fmt.Errorf("download a part of %q: %w", object, err)
	}
	return nil
}

// DownloadFile downloads an object into a new file at path, like [Store.Download]. When
// DownloadFile returns, the file exists only if it is complete.
func (s *Store) DownloadFile(ctx context.Context, object string, generation int64, path string) (Object, error) {
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return Object{}, fmt.Errorf("download %q: %w", object, err)
	}
	o, err := s.Download(ctx, object, generation, f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part) // the first error is returned
		return Object{}, err
	}
	return o, nil
}

// fetch reads o from its start. The attempt count starts over whenever bytes arrive, so a long
// download over an unreliable connection only fails when no more bytes arrive.
func (s *Store) fetch(ctx context.Context, o Object, w io.Writer) error {
	const tries = 6
	out := &counted{w: w, sum: crc32.New(castagnoli)}
	for try := 0; out.n < o.Size; {
		before := out.n
		err := s.fetchFrom(ctx, o, out)
		if out.err != nil {
			return out.err // w failed, not the connection
		}
		if err == nil && out.n < o.Size {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			break
		}
		if out.n > before {
			try = 0
		}
		if try++; try == tries || ctx.Err() != nil || !storage.ShouldRetry(err) && !errors.Is(err, errStalled) {
			return mapError(err)
		}
		if !outage.Pause(ctx, min(100*time.Millisecond<<try, 5*time.Second)) {
			return mapError(ctx.Err())
		}
	}
	if out.n != o.Size || out.sum.Sum32() != o.CRC32C {
		return apierr.Down(errors.New("downloaded bytes do not match the checksum in storage"))
	}
	return nil
}

func (s *Store) fetchFrom(ctx context.Context, o Object, out *counted) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Each write to out resets the timer. If no write occurs in time, the read fails with
	// errStalled.
	watch := time.AfterFunc(s.stall, func() { cancel(errStalled) })
	defer watch.Stop()
	out.moved = func() { watch.Reset(s.stall) }
	r, err := s.handle(o.Name, o.stored).NewRangeReader(ctx, out.n, o.Size-out.n)
	if err == nil {
		// Some servers ignore the range, and an endless response could fill a shared disk.
		_, err = io.Copy(out, io.LimitReader(r, o.Size-out.n))
		_ = r.Close() // Copy has already reported the reader's errors
	}
	if err != nil {
		return orStalled(ctx, err)
	}
	return nil
}

// counted counts and checksums the bytes that have arrived. It distinguishes errors from the writer
// from connection errors.
type counted struct {
	w     io.Writer
	n     int64
	sum   hash.Hash32
	err   error
	moved func()
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	c.sum.Write(p[:n])
	c.err = err
	c.moved()
	return n, err
}
