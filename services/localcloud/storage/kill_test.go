package storage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gcs "cloud.google.com/go/storage"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// childEnv, if set, makes this test binary run a server on the directory that it names.
const childEnv = "LOCALCLOUD_STORAGE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		fmt.Fprintln(os.Stderr, child(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

type addresses struct{ Public, API string }

func child(dir string) error {
	s, err := storage.Open(storage.Options{Dir: dir, Buckets: []string{"b-1"}})
	if err != nil {
		return err
	}
	public, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	api, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	json.NewEncoder(os.Stdout).Encode(addresses{"http://" + public.Addr().String(), "http://" + api.Addr().String()})
	go http.Serve(public, s.PublicHandler())
	return http.Serve(api, s.APIHandler())
}

// process is a server in a separate process.
type process struct {
	cmd *exec.Cmd
	addresses
	client *gcs.Client
}

func startProcess(t *testing.T, dir string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(exe)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+dir)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	if err := json.NewDecoder(out).Decode(&p.addresses); err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	p.client, err = gcs.NewClient(context.Background(), option.WithEndpoint(p.API+"/storage/v1/"), option.WithoutAuthentication(), gcs.WithJSONReads())
	if err != nil {
		t.Fatal(err)
	}
	p.client.SetRetry(gcs.WithPolicy(gcs.RetryNever))
	return p
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// content returns the only valid body for a name, number and size.
func content(name string, seq, size int) []byte {
	head := fmt.Sprintf("%s %d %d\n", name, seq, size)
	b := bytes.Repeat([]byte(head), size/len(head)+1)
	return b[:max(size, len(head))]
}

// whole returns the name and the number of the write that produced a body. ok reports whether the
// body is complete.
func whole(b []byte) (name string, seq int, ok bool) {
	line, _, _ := bytes.Cut(b, []byte("\n"))
	var size int
	if _, err := fmt.Sscanf(string(line), "%s %d %d", &name, &seq, &size); err != nil {
		return "", 0, false
	}
	return name, seq, bytes.Equal(b, content(name, seq, size))
}

// ledger records acknowledged and attempted writes. An attempted write may or may not have reached
// the disk.
type ledger struct {
	mu       sync.Mutex
	acked    map[string]int // last acknowledged number; 0 after an acknowledged delete
	tried    map[string]int
	sessions map[string]int // acknowledged bytes by session URI path
	count    int
}

func TestEveryAcknowledgedObjectSurvivesAKill(t *testing.T) {
	rounds := 4
	if v := os.Getenv("LOCALCLOUD_KILLS"); v != "" {
		rounds, _ = strconv.Atoi(v)
	}
	if testing.Short() {
		rounds = 1
	}
	dir := t.TempDir()
	l := &ledger{acked: map[string]int{}, tried: map[string]int{}, sessions: map[string]int{}}
	p := startProcess(t, dir)
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for w := range 6 {
			wg.Go(func() { l.load(ctx, p, fmt.Sprintf("w%d", w)) })
		}
		wg.Go(func() { l.resume(ctx, p, round) })
		before := l.acknowledged()
		eventually(t, "the server has acknowledged writes", func() bool { return l.acknowledged() > before })
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // kill at a random moment
		p.kill()
		cancel()
		wg.Wait()
		p = startProcess(t, dir)
		l.check(t, p)
		if t.Failed() {
			t.Fatalf("stopping because a check failed in round %d", round)
		}
	}
	t.Logf("%d kills, %d acknowledged writes, %d sessions", rounds, l.count, len(l.sessions))
	if l.count == 0 {
		t.Error("the server acknowledged 0 writes, want at least one")
	}
}

func (l *ledger) acknowledged() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// load writes, overwrites and deletes its own objects until the server exits.
func (l *ledger) load(ctx context.Context, p *process, worker string) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("%s-%d", worker, rand.IntN(40))
		l.mu.Lock()
		seq := l.tried[name] + 1
		l.tried[name] = seq
		l.mu.Unlock()
		o := p.client.Bucket("b-1").Object(name)
		var err error
		done := seq
		if seq%7 == 0 {
			if err = o.Delete(ctx); errors.Is(err, gcs.ErrObjectNotExist) {
				err = nil
			}
			done = 0
		} else {
			w := o.NewWriter(ctx)
			w.ChunkSize = []int{0, 256 << 10}[i%2]
			w.Write(content(name, seq, rand.IntN(400<<10)))
			err = w.Close()
		}
		if err != nil {
			return
		}
		l.mu.Lock()
		l.acked[name] = done
		l.count++
		l.mu.Unlock()
	}
}

// resume starts a session and sends chunks of it until the server exits.
func (l *ledger) resume(ctx context.Context, p *process, round int) {
	name := fmt.Sprintf("session-%d", round)
	a, err := tryCall(ctx, "POST", p.API+"/upload/storage/v1/b/b-1/o?uploadType=resumable&name="+name, nil)
	if err != nil || a.status != 200 {
		return
	}
	path := strings.TrimPrefix(a.header.Get("Location"), p.API)
	for n := 0; ctx.Err() == nil; n += 256 << 10 {
		a, err := tryCall(ctx, "PUT", p.API+path, bytes.NewReader(content(name, 1, 256<<10)[:256<<10]), "Content-Range", fmt.Sprintf("bytes %d-%d/*", n, n+256<<10-1))
		if err != nil || a.status != 308 {
			return
		}
		l.mu.Lock()
		l.sessions[path] = n + 256<<10
		l.mu.Unlock()
	}
}

func (l *ledger) check(t *testing.T, p *process) {
	t.Helper()
	found := map[string]int{}
	it := p.client.Bucket("b-1").Objects(t.Context(), nil)
	for {
		a, err := it.Next()
		if errors.Is(err, iterator.Done) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.client.Bucket("b-1").Object(a.Name).NewReader(t.Context())
		if err != nil {
			t.Errorf("the listed object %s cannot be read: %v", a.Name, err)
			continue
		}
		b, err := io.ReadAll(r)
		r.Close()
		name, seq, ok := whole(b)
		if err != nil || !ok || name != a.Name || int64(len(b)) != a.Size {
			t.Errorf("%s is incomplete: it has %d of %d bytes (error %v)", a.Name, len(b), a.Size, err)
		}
		found[a.Name] = seq
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, tried := range l.tried {
		acked, got := l.acked[name], found[name]
		// The object contains either the last acknowledged write or the one that the kill
		// interrupted.
		if got != acked && !(got == tried || got == 0 && tried%7 == 0) {
			t.Errorf("%s contains the write %d, want the acknowledged %d or the last attempted %d", name, got, acked, tried)
		}
		l.acked[name] = got
	}
	for path, n := range l.sessions {
		a, err := tryCall(t.Context(), "PUT", p.API+path, nil, "Content-Range", "bytes */*")
		last := -1
		fmt.Sscanf(a.header.Get("Range"), "bytes=0-%d", &last)
		if err != nil || a.status != 308 || last+1 < n {
			t.Errorf("a session with %d acknowledged bytes returned %d with the range %q (error %v), want 308 with at least these bytes", n, a.status, a.header.Get("Range"), err)
		}
	}
}
