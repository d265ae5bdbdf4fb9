package httpapi

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a connection that records its write deadline.
type wire struct {
	net.Conn
	deadline time.Time
}

func (w *wire) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }

// stream reads a stream of chunks as the server does, for a client that takes some time to read
// each chunk. It returns the number of bytes that the client received.
func stream(chunks int, produce, take time.Duration) (got int, lasted time.Duration, err error) {
	r, w := io.Pipe()
	conn := &wire{}
	body := &streamBody{PipeReader: r, conn: conn, cancel: func() {}, credit: streamStall}
	go func() {
		for range chunks {
			time.Sleep(produce)
			if _, err := w.Write(make([]byte, streamChunk)); err != nil {
				return
			}
		}
		_ = w.Close()
	}()
	begun := time.Now()
	defer func() { lasted = time.Since(begun); _ = body.Close() }()
	buf := make([]byte, streamChunk)
	for {
		n, err := body.Read(buf)
		got += n
		if errors.Is(err, io.EOF) {
			return got, 0, nil
		}
		if err != nil {
			return got, 0, err
		}
		time.Sleep(take)
		if time.Now().After(conn.deadline) {
			return got, 0, errors.New("the write deadline has passed")
		}
	}
}

func TestAReaderThatIsTooSlowEndsItsStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// This client never stops reading, but it reads only one chunk every ten seconds.
		got, lasted, err := stream(10_000, 0, 10*time.Second)
		if err == nil || lasted > 2*time.Minute {
			t.Errorf("received %d bytes in %v, error %v; want an error within two minutes", got, lasted, err)
		}
	})
}

func TestAReaderThatWaitsForTheProducerIsNotSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const chunks = 100
		if got, lasted, err := stream(chunks, 20*time.Second, 100*time.Millisecond); err != nil || got != chunks*streamChunk {
			t.Errorf("received %d bytes in %v, error %v; want all bytes and no error", got, lasted, err)
		}
	})
}

func TestAFastBeginningBuysNoSlowEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &streamBody{conn: &wire{}, cancel: func() {}, credit: streamStall}
		var w *io.PipeWriter
		b.PipeReader, w = io.Pipe()
		go func() {
			for {
				if _, err := w.Write(make([]byte, streamChunk)); err != nil {
					return
				}
			}
		}()
		buf := make([]byte, streamChunk)
		for range 10_000 { // 300 MiB in one write
			if _, err := b.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(streamStall + time.Second)
		if _, err := b.Read(buf); !errors.Is(err, errSlowReader) {
			t.Errorf("Read after a pause = %v, want %v", err, errSlowReader)
		}
		_ = b.Close()
	})
}
