package share

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Posters and captions are sent through this service. A client that stops reading keeps its
// response in memory until the server's write timeout, so these limits bound the memory that
// responses use.
const (
	maxSmall = 2 << 20
	// anyway is the largest body that every connection may keep in memory. A connection's own
	// buffers take up about as much.
	anyway = 64 << 10
	// wholeOfAccount and wholeBodies limit how many larger bodies may be in memory while they are
	// being sent, per account and across all accounts. Any additional body is streamed from
	// storage.
	wholeOfAccount, wholeBodies = 4, 32
	// passTime limits the download from storage. The server's write timeout usually ends it
	// sooner.
	passTime = time.Minute
)

// send sends a small object as the response. Object names are never reused, so the body may
// be cached.
func (s *Share) send(c *fiber.Ctx, account, object, contentType string) error {
	c.Set(fiber.HeaderContentType, contentType)
	now := s.o.Now()
	if body, ok := s.small.get(object, now); ok && s.sendWhole(c, account, body) {
		return nil
	}
	request := c.UserContext()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(request), passTime)
	r, w := io.Pipe()
	go func() {
		_, err := s.o.Bucket.Download(ctx, object, 0, &bounded{w: w})
		_ = w.CloseWithError(err) // never fails
	}()
	end := func() {
		_ = r.Close() // never fails
		cancel()
	}
	// If storage hangs, the download ends with the request.
	stop := context.AfterFunc(request, end)
	first, whole, err := readUpTo(r, anyway)
	release, ok := func() {}, false
	if err == nil && !whole {
		if release, ok = s.whole.Take(account); ok {
			var rest []byte
			rest, err = io.ReadAll(r)
			first, whole = append(first, rest...), true
		}
	}
	stop()
	if request.Err() != nil && err != nil {
		err = request.Err()
	}
	if err != nil || whole {
		end()
	}
	if err != nil && ok {
		release()
	}
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return video.NotFound() // deleted after the record was read
	case err != nil:
		return err
	case !whole:
		c.Response().SetBodyStream(&sent{io.MultiReader(bytes.NewReader(first), r), end}, -1)
		return nil
	}
	first = bytes.Clone(first) // drop spare capacity because the cache may keep the slice
	s.small.put(object, first, now.Add(10*time.Minute))
	if !ok {
		c.Response().SetBodyRaw(first)
		return nil
	}
	c.Response().SetBodyStream(&sent{bytes.NewReader(first), release}, len(first))
	return nil
}

// sendWhole sends a body that is in memory. If too many such bodies are already being sent, it
// returns false without sending anything.
func (s *Share) sendWhole(c *fiber.Ctx, account string, body []byte) bool {
	if len(body) <= anyway {
		c.Response().SetBodyRaw(body)
		return true
	}
	release, ok := s.whole.Take(account)
	if ok {
		c.Response().SetBodyStream(&sent{bytes.NewReader(body), release}, len(body))
	}
	return ok
}

// sent is a body that calls end once it has been sent or the client has disconnected.
type sent struct {
	io.Reader
	end func()
}

// Close implements [io.Closer].
func (b *sent) Close() error {
	b.end()
	return nil
}

// readUpTo reads up to n+1 bytes. whole reports whether r ended within n bytes.
func readUpTo(r io.Reader, n int) (body []byte, whole bool, err error) {
	body, err = io.ReadAll(io.LimitReader(r, int64(n)+1))
	return body, len(body) <= n, err
}

// bounded is a writer that fails if an object is larger than maxSmall.
type bounded struct {
	w io.Writer
	n int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.n += len(p); b.n > maxSmall {
		return 0, errors.New("object exceeds the size limit for pictures and captions")
	}
	return b.w.Write(p)
}
