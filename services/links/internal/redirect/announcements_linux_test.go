package redirect

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/redisdb"
	"github.com/linkreel/linkreel/services/links/internal/clicks"
	"github.com/linkreel/linkreel/services/links/internal/invalidation"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// generatorEnv turns the test binary into a process that announces changes. Its value consists of
// the Redis address, the number of partitions and the number of changes per second.
const generatorEnv = "LINKREEL_TEST_ANNOUNCE"

func init() {
	if spec := os.Getenv(generatorEnv); spec != "" {
		fmt.Fprintln(os.Stderr, generate(spec)) // generate only returns on an error
		os.Exit(1)
	}
}

// generate announces changes to unvisited links until the process is killed.
func generate(spec string) error {
	var addr string
	var parts, rate int
	if _, err := fmt.Sscan(spec, &addr, &parts, &rate); err != nil {
		return err
	}
	client, err := redisdb.Open(redisdb.Config{URL: addr, Timeout: 2 * time.Second})
	if err != nil {
		return err
	}
	memory := invalidation.NewMemory(invalidation.Options{Target: generated{}.Target, Host: generated{}.Host, Suspended: nobody, Capacity: 1 << 20, Partitions: parts})
	a := invalidation.NewAnnouncer(client, memory, "generator")
	go func() { _ = a.Run(context.Background()) }()
	// Announce 50 batches per second because concurrent changes share calls.
	each := max(rate/50, 1)
	pause := time.Duration(each) * time.Second / time.Duration(rate)
	fmt.Println("ready")
	n := 0
	for due := time.Now(); ; due = due.Add(pause) {
		time.Sleep(time.Until(due))
		keys := make([]string, each)
		for i := range keys {
			keys[i] = "|other" + strconv.Itoa(n)
			n++
		}
		a.Announce(context.Background(), keys...)
	}
}

// BenchmarkServeBesideAnnouncements measures redirects for cached links while another process
// announces changes to other links. It reports the CPU time that this process and Redis use per
// redirect (cpu-ns/op).
func BenchmarkServeBesideAnnouncements(b *testing.B) {
	for _, parts := range []int{1, 4, 16} {
		for _, rate := range []int{0, 700, 10_000} {
			b.Run(fmt.Sprintf("partitions=%d/changes=%d", parts, rate), func(b *testing.B) {
				server := redistest.Server(b)
				if rate > 0 {
					startGenerator(b, fmt.Sprint(server.Addr(), " ", parts, " ", rate))
				}
				m := invalidation.NewMemory(invalidation.Options{Target: generated{}.Target, Host: generated{}.Host, Suspended: nobody, Capacity: 64 << 20, Partitions: parts})
				log, err := clicks.Open(clicks.Config{Redis: redisdb.Config{URL: server.Addr()}, SpoolDir: b.TempDir(), Budget: time.Second}, m)
				if err != nil {
					b.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- log.Run(ctx) }()
				redis := processOf(b, server)
				cpu := func() time.Duration {
					used, err := procstat.CPU(os.Getpid(), redis)
					if err != nil {
						b.Fatal(err)
					}
					return used
				}
				before := cpu()
				b.ResetTimer()
				benchmarkMemory(b, m, log)
				b.StopTimer()
				b.ReportMetric(float64((cpu()-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
				cancel()
				<-done
			})
		}
	}
}

func startGenerator(b *testing.B, spec string) {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), generatorEnv+"="+spec)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		b.Fatalf("the generator did not start: %q %v", line, err)
	}
}

func processOf(b *testing.B, s *redisproc.Server) (pid int) {
	b.Helper()
	_, text, _ := strings.Cut(redistest.Do(b, s.Addr(), "INFO", "server"), "process_id:")
	if _, err := fmt.Sscan(text, &pid); err != nil {
		b.Fatal("read the Redis process ID: ", err)
	}
	return pid
}
