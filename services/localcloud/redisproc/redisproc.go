// Package redisproc runs a real redis-server as a child process. `make run` and every test that
// needs Redis use it.
//
// The server listens on loopback only, keeps an append-only file in its folder, and exits with its
// parent. A parent that exits normally calls Stop. If the parent is killed, the kernel's
// parent-death signal ends the server on Linux. If a killed parent has left a server running on the
// same folder, Start first stops that server because two writers would corrupt the append-only
// file.
package redisproc

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options configures a server.
type Options struct {
	Dir    string   // folder for the data, the log and the pid file; created if missing
	Addr   string   // loopback address; "" uses a free port
	Binary string   // "" looks for redis-server or valkey-server on the PATH
	Fsync  string   // appendfsync: "everysec" (default), "always", "no"
	Memory bool     // does not store anything on disk
	Args   []string // more server options, such as "--maxmemory", "64mb"
	// Sentinel runs a Sentinel instead of a data server. It is configured through commands.
	Sentinel bool
	Log      io.Writer // receives the server's log lines; nil discards them
}

// ErrNoBinary is returned if neither redis-server nor valkey-server is installed.
var ErrNoBinary = errors.New("redis-server is not installed")

// Server is a running child process.
type Server struct {
	opt  Options
	addr string

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the current process has exited
}

// Start runs a server and returns once the server responds.
func Start(ctx context.Context, opt Options) (*Server, error) {
	if opt.Binary == "" {
		for _, name := range []string{"redis-server", "valkey-server"} {
			if path, err := exec.LookPath(name); err == nil {
				opt.Binary = path
				break
			}
		}
		if opt.Binary == "" {
			return nil, ErrNoBinary
		}
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot create the Redis folder: %w", err)
	}
	if err := endLeftover(opt.Dir); err != nil {
		return nil, err
	}
	addr := opt.Addr
	if addr == "" {
		free, err := FreeAddr()
		if err != nil {
			return nil, err
		}
		addr = free
	}
	s := &Server{opt: opt, addr: addr}
	if err := s.Restart(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Addr returns the server's host:port, which Restart does not change.
func (s *Server) Addr() string { return s.addr }

// Dir returns the folder with the server's data.
func (s *Server) Dir() string { return s.opt.Dir }

// Restart starts the server again on the same folder and address after Kill or Stop.
func (s *Server) Restart(ctx context.Context) error {
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		return fmt.Errorf("invalid Redis address %q: %w", s.addr, err)
	}
	fsync := s.opt.Fsync
	if fsync == "" {
		fsync = "everysec"
	}
	args := []string{"--bind", host, "--port", port, "--dir", s.opt.Dir, "--daemonize", "no", "--save", "",
		"--maxmemory-policy", "noeviction", "--tcp-backlog", "1024"}
	if s.opt.Sentinel {
		// Sentinel requires its own configuration file, where it saves its state.
		conf := filepath.Join(s.opt.Dir, "sentinel.conf")
		if err := os.WriteFile(conf, []byte(fmt.Sprintf("bind %s\nport %s\ndir %s\n", host, port, s.opt.Dir)), 0o600); err != nil {
			return fmt.Errorf("cannot write Sentinel's configuration file: %w", err)
		}
		args = []string{conf, "--sentinel"}
	} else if !s.opt.Memory {
		args = append(args, "--appendonly", "yes", "--appendfsync", fsync)
	}
	args = append(args, s.opt.Args...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.opt.Binary, args...)
	said := &lastLine{to: s.opt.Log}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.WaitDelay = time.Second // a child that rewrites the append-only file may still hold the output of a killed server
	dieWithParent(cmd)
	done := make(chan struct{})
	started := make(chan error, 1)
	go func() {
		// The kernel sends the parent-death signal when the forking thread ends, so this goroutine
		// keeps its thread until the child has exited.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread() // keep the thread alive because ending it would kill other children that it forked
		defer close(done)
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		_ = cmd.Wait() // ignore the exit status because callers only wait for done
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("cannot start %s: %w", s.opt.Binary, err)
	}
	s.mu.Lock()
	s.cmd, s.done = cmd, done
	s.mu.Unlock()
	pidFile := filepath.Join(s.opt.Dir, "redis.pid")
	if err := os.WriteFile(pidFile, fmt.Appendf(nil, "%d %s", cmd.Process.Pid, port), 0o600); err != nil {
		return fmt.Errorf("cannot write the Redis pid file: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	refusal := ""
	for {
		reply := ping(ctx, s.addr)
		if strings.HasPrefix(reply, "+PONG") {
			return nil
		}
		refusal = cmp.Or(reply, refusal)
		select {
		case <-done:
			return fmt.Errorf("redis-server on %s exited immediately: %s", s.addr, cmp.Or(said.String(), "it printed nothing"))
		case <-ctx.Done():
			_ = s.Kill()
			if refusal != "" {
				return fmt.Errorf("redis-server on %s with folder %s is not ready: %s", s.addr, s.opt.Dir, strings.TrimPrefix(refusal, "-"))
			}
			return fmt.Errorf("redis-server on %s did not respond: %w", s.addr, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Signal sends sig, for tests that pause the server (SIGSTOP, SIGCONT).
func (s *Server) Signal(sig os.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Signal(sig)
}

// Kill kills the process immediately (SIGKILL) and waits until it has exited.
func (s *Server) Kill() error { return s.end(syscall.SIGKILL, 0) }

// Stop tells the process to write its data and exit. If the process is still running after ten
// seconds, Stop kills it.
func (s *Server) Stop() error { return s.end(syscall.SIGTERM, 10*time.Second) }

// Done returns a channel that is closed when the current process has exited for any reason.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

func (s *Server) end(sig syscall.Signal, patience time.Duration) error {
	s.mu.Lock()
	cmd, done := s.cmd, s.done
	s.mu.Unlock()
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("cannot signal redis-server: %w", err)
	}
	if patience > 0 {
		select {
		case <-done:
		case <-time.After(patience):
			_ = cmd.Process.Kill() // fails if the process has just exited
		}
	}
	<-done
	_ = os.Remove(filepath.Join(s.opt.Dir, "redis.pid")) // a stale file is harmless because Start checks the process
	return nil
}

// endLeftover stops a server that a previous parent has left running on dir.
func endLeftover(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "redis.pid"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the Redis pid file: %w", err)
	}
	var pid int
	var port string
	if _, err := fmt.Sscan(string(text), &pid, &port); err != nil || pid <= 0 || !isRedis(pid, port) {
		return nil
	}
	// SIGTERM lets Redis finish its append-only file. Kill Redis only if it is still running after
	// 5 s.
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		_ = syscall.Kill(pid, sig) // the process may exit before the signal
		for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if !isRedis(pid, port) {
				return nil
			}
		}
	}
	return fmt.Errorf("a previous redis-server (process %d) still uses %s", pid, dir)
}

// isRedis reports whether pid is a running Redis on port. This keeps Start from signalling a
// different process that has reused the pid, even if that process is also Redis. The command line
// contains the port, first in the --port option and later in the process title that Redis sets.
func isRedis(pid int, port string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty for a zombie
	if err != nil {                                                // no such process, or a system without /proc
		line, _ = exec.CommandContext(context.Background(), "ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	}
	args := strings.FieldsFunc(string(line), func(r rune) bool { return r == 0 || r == ' ' })
	if len(args) == 0 || !strings.Contains(args[0], "redis") && !strings.Contains(args[0], "valkey") {
		return false
	}
	at := slices.Index(args, "--port") + 1
	return at > 0 && at < len(args) && args[at] == port || len(args) > 1 && strings.HasSuffix(args[1], ":"+port)
}

// ping returns the server's reply to PING, or "" if there is none. Only "+PONG" means that the
// server is ready: it replies "-LOADING" while it loads its data, and "-MISCONF" while it cannot
// write to its folder, for example because the disk is full.
func ping(ctx context.Context, addr string) string {
	d := net.Dialer{Timeout: 200 * time.Millisecond}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return ""
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSpace(line)
}

// lastLine passes on the server's output and keeps its last line, which says why a server exited.
type lastLine struct {
	to io.Writer // nil discards the output

	mu   sync.Mutex
	text string
}

// logPrefix is what Redis writes before a log message: process and role, time, and level.
var logPrefix = regexp.MustCompile(`^\d+:[A-Z] .{1,30}? [.*#-] `)

func (l *lastLine) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lines := strings.Split(strings.TrimSpace(string(b)), "\n"); lines[len(lines)-1] != "" {
		l.text = logPrefix.ReplaceAllString(strings.TrimSpace(lines[len(lines)-1]), "")
	}
	if l.to == nil {
		return len(b), nil
	}
	return l.to.Write(b)
}

func (l *lastLine) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// FreeAddr returns a free loopback address. Its port is below 32768, where the range for outgoing
// connections begins. Otherwise an outgoing connection could take the port while the server
// restarts.
func FreeAddr() (string, error) {
	var err error
	for range 100 {
		var l net.Listener
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(20_000))))
		if err == nil {
			defer func() { _ = l.Close() }()
			return l.Addr().String(), nil
		}
	}
	return "", fmt.Errorf("cannot find a free port: %w", err)
}
