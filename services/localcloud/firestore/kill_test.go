package firestore_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pb "cloud.google.com/go/firestore/apiv1/firestorepb"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// serveEnv, if set, makes this test binary serve a data file, so a test can kill it.
const serveEnv = "LINKREEL_TEST_SERVE_FIRESTORE"

func TestMain(m *testing.M) {
	if path := os.Getenv(serveEnv); path != "" {
		serveUntilKilled(path)
	}
	code := m.Run()
	emulator.Stop(code != 0)
	os.Exit(code)
}

func serveUntilKilled(path string) {
	ix, err := firestore.ParseIndexes([]byte(declared))
	if err == nil {
		var s *firestore.Server
		if s, err = firestore.Open(firestore.Options{Path: path, Indexes: ix}); err == nil {
			addr, listenErr := s.Listen("127.0.0.1:0")
			if err = listenErr; err == nil {
				fmt.Println("serving", addr)
				select {}
			}
		}
	}
	fmt.Println("failed", err)
	os.Exit(1)
}

// TestKill kills the server's process at random moments under load. Afterwards, every acknowledged
// write must exist. Two documents that were written together must both exist or both be missing.
// The indexes must match the documents. LINKREEL_KILLS sets the number of kills.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data.db")
	kills := envInt(t, "LINKREEL_KILLS", 4)
	acked := &ledger{written: map[string]int64{}}
	for round := range kills {
		killOnce(t, path, round, acked)
		acked.check(t, path)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d kills, %d acknowledged documents", kills, len(acked.written))
}

// ledger contains the writes that the server has acknowledged.
type ledger struct {
	mu      sync.Mutex
	written map[string]int64 // last acknowledged value by document
}

func (l *ledger) ack(n int64, ids ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		l.written[id] = n
	}
}

func (l *ledger) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.written)
}

func killOnce(t *testing.T, path string, round int, acked *ledger) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serveEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "serving ")
	if !ok {
		t.Fatalf("the server printed %q (error %v), want its address", line, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	before := acked.size()
	for caller := range 8 {
		c := dial(t, addr)
		wg.Go(func() { pairs(ctx, c, fmt.Sprintf("r%d-c%d", round, caller), acked) })
	}
	// wait for some commits and then kill the process at a random moment
	for acked.size() < before+20 && ctx.Err() == nil {
		time.Sleep(time.Millisecond) // poll because the server process does not signal its progress
	}
	time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // always fails because the process was killed
	cancel()
	wg.Wait()
}

// pairs writes documents in pairs, some of them repeatedly, until the server is killed.
func pairs(ctx context.Context, c pb.FirestoreClient, who string, acked *ledger) {
	for n := int64(1); ; n++ {
		ids := []string{fmt.Sprintf("%s-%d-x", who, n), fmt.Sprintf("%s-%d-y", who, n)}
		if n%3 == 0 {
			ids = []string{who + "-again-x", who + "-again-y"}
		}
		var writes []*pb.Write
		for _, id := range ids {
			writes = append(writes, &pb.Write{Operation: &pb.Write_Update{Update: &pb.Document{
				Name:   database + "/documents/k/" + id,
				Fields: map[string]*pb.Value{"n": integer(n), "g": text(who), "t": array(integer(n%5), integer(n%3))},
			}}})
		}
		if _, err := c.Commit(ctx, &pb.CommitRequest{Database: database, Writes: writes}); err != nil {
			return
		}
		acked.ack(n, ids...)
	}
}

func (l *ledger) check(t *testing.T, path string) {
	t.Helper()
	s, err := firestore.Open(firestore.Options{Path: path, Indexes: indexes(t, declared)})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	must(t, firestore.CheckConsistency(s))
	docs, err := client(t, s).Collection("k").Documents(ctxOf(t)).GetAll()
	must(t, err)
	there := map[string]int64{}
	for _, d := range docs {
		there[d.Ref.ID] = d.Data()["n"].(int64)
	}
	for id, n := range l.written {
		if there[id] < n {
			t.Errorf("%s was acknowledged with the value %d but has %d", id, n, there[id])
		}
	}
	for id, n := range there {
		twin := strings.TrimSuffix(id, "-x") + "-y"
		if strings.HasSuffix(id, "-x") && there[twin] != n {
			t.Errorf("%s has %d, but %s, which was written with it, has %d", id, n, twin, there[twin])
		}
	}
}
