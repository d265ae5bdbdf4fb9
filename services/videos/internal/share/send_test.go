package share

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
)

// library is a bucket with captions of 1 MiB under every name.
type library struct {
	storage
	asked *atomic.Int64
}

const captionSize = 1 << 20

func (b library) Download(_ context.Context, _ string, _ int64, w io.Writer) (objectstore.Object, error) {
	b.asked.Add(1)
	piece := bytes.Repeat([]byte("x"), 16<<10)
	for n := 0; n < captionSize; n += len(piece) {
		if _, err := w.Write(piece); err != nil {
			return objectstore.Object{}, err
		}
	}
	return objectstore.Object{}, nil
}

// Many viewers request different captions from one account and do not read the responses. The
// test measures the heap, so it must not run in parallel with other tests.
func TestReadersThatReadNothingHoldLittle(t *testing.T) {
	asked := &atomic.Int64{}
	s, err := New(Options{Guard: limiter{}, Bucket: library{asked: asked}, Now: time.Now, WatchTTL: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Get("/:account/:object", func(c *fiber.Ctx) error {
		return s.send(c, c.Params("account"), string(bytes.Clone([]byte(c.Params("object")))), "text/vtt")
	})
	l := fasthttputil.NewInmemoryListener()
	go func() { _ = app.Listener(l) }()
	t.Cleanup(func() { _ = app.Shutdown() })
	before := procstat.Heap()
	const readers = 80
	for i := range readers {
		c, err := l.Dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := io.WriteString(c, "GET /acc_a/"+strconv.Itoa(i)+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 15)); err != nil { // the response has started
			t.Fatal(err)
		}
	}
	if n := s.whole.Taken(); n > wholeOfAccount {
		t.Errorf("%d bodies for one account are in memory, want at most %d", n, wholeOfAccount)
	}
	if grown := procstat.Heap() - before; grown > readers*captionSize/2 {
		t.Errorf("%d clients that do not read use %d MiB, want at most %d MiB", readers, grown>>20, (readers*captionSize/2)>>20)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return l.Dial() }}}
	for _, account := range []string{"acc_a", "acc_b"} { // one body is streamed, the other sent from memory
		for range 2 {
			res, err := client.Get("http://x/" + account + "/new-" + account)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || len(body) != captionSize {
				t.Errorf("a viewer of %s got %d bytes and error %v, want %d bytes", account, len(body), err, captionSize)
			}
		}
	}
	if n := asked.Load(); n != readers+3 {
		t.Errorf("got %d requests to storage, want %d because bodies sent from memory are cached", n, readers+3)
	}
}
