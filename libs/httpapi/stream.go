package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
)

// JSONLines is the media type of a stream with one JSON value per line.
const JSONLines = "application/jsonl"

const (
	streamTime  = time.Hour        // the maximum duration of a stream
	streamStall = 30 * time.Second // how long a client may pause reading
	streamChunk = 32 << 10
	// streamRate is the minimum rate at which a client must read, in bytes per second. Without it,
	// a client that reads a few bytes now and then would hold the stream's resources for an hour.
	streamRate = 64 << 10
)

// Stream sends a 200 with the output of write. It uses constant memory because write blocks until
// the client has read its output. The request's deadline does not apply. The stream ends when the
// client disconnects, when the client reads less than 64 KiB a second for half a minute, or after
// an hour. Time spent in write does not count against the client.
//
// An error before the first chunk becomes a normal error response. After that, the status has
// already been sent, so the server closes the connection without the final chunk. This lets clients
// distinguish an incomplete response from a short one.
func Stream(c *fiber.Ctx, contentType string, write func(ctx context.Context, w io.Writer) error) error {
	c.Set(fiber.HeaderContentType, contentType)
	c.Set(fiber.HeaderCacheControl, "private, no-store")
	if c.Method() == fiber.MethodHead {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), streamTime)
	r, w := io.Pipe()
	begun := &firstWrite{w: w, begun: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		err := produce(ctx, begun, write)
		// Close the pipe first because it must be closed when ended is received.
		_ = w.CloseWithError(err) // never fails
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			slog.WarnContext(ctx, "stream failed; closing the connection", "error", err)
		}
		ended <- err
	}()
	select {
	case <-begun.begun:
	case err := <-ended:
		if err != nil {
			cancel()
			return err
		}
	case <-c.UserContext().Done():
		cancel()
		_ = r.Close() // never fails
		return c.UserContext().Err()
	}
	c.Response().SetBodyStream(&streamBody{PipeReader: r, conn: c.Context().Conn(), cancel: cancel, credit: streamStall}, -1)
	return nil
}

func produce(ctx context.Context, to io.Writer, write func(context.Context, io.Writer) error) (err error) {
	// This function runs in its own goroutine, where an uncaught panic would end the process.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	// The buffer delays the status, so an error in the first 32 KiB still becomes an error
	// response.
	buf := bufio.NewWriterSize(to, streamChunk)
	if err := write(ctx, buf); err != nil {
		return err
	}
	return buf.Flush()
}

// firstWrite signals when the first chunk is written.
type firstWrite struct {
	w     io.Writer
	once  sync.Once
	begun chan struct{}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(func() { close(f.begun) })
	return f.w.Write(p)
}

// streamBody is the response body that the server reads. The server sets the connection's write
// deadline only once, before the first byte, so streamBody extends it with each chunk.
type streamBody struct {
	*io.PipeReader
	conn   net.Conn
	cancel context.CancelFunc

	credit time.Duration // how much longer the client may take
	handed time.Time     // when the server got the latest chunk; zero before the first
}

// errSlowReader ends the stream to a client that reads too slowly.
var errSlowReader = errors.New("the client reads less than 64 KiB a second")

func (b *streamBody) Read(p []byte) (int, error) {
	if !b.handed.IsZero() {
		b.credit -= time.Since(b.handed)
	}
	if b.credit <= 0 {
		_ = b.CloseWithError(errSlowReader) // never fails; the producer gets the error too
		return 0, errSlowReader
	}
	n, err := b.PipeReader.Read(p)
	b.handed = time.Now()
	if n > 0 {
		_ = b.conn.SetWriteDeadline(b.handed.Add(b.credit)) // the next write reports an error
		b.credit = min(streamStall, b.credit+time.Duration(n)*time.Second/streamRate)
	}
	return n, err
}

// Close is called by the server when the response has been sent or the client has disconnected.
func (b *streamBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
