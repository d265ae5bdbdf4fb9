package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/procstat"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/standalone"
)

// Requests per second during a backup.
const (
	backupVisits = 500
	backupWrites = 50
)

// filesOfVideo lists the files that make up a video of about half a minute, with their sizes in
// bytes.
var filesOfVideo = map[string]int{"480.mp4": 2 << 20, "720.mp4": 4 << 20, "1080.mp4": 6 << 20, "poster.jpg": 60 << 10, "storyboard.jpg": 200 << 10}

// benchBackup measures a backup of 100,000 links and 200 videos while links are visited and
// created, then the next backup, and then a restore up to the first redirect.
func benchBackup(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "linkreel-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := startServer(ctx, "embedded", dir, "")
	if err != nil {
		return err
	}
	defer s.stop()
	data, backups := filepath.Join(dir, "embedded"), filepath.Join(dir, "backups")
	links, videos := setting("BENCH_LINKS", manyLinks), setting("BENCH_VIDEOS", manyVideos)
	stored, err := sizeOf(filepath.Join(data, "objects"))
	if err != nil {
		return err
	}
	fmt.Printf("creating %d links; there are %d videos with %s …\n", links, videos, megabytes(stored))
	slugs, err := s.createLinks(ctx, links)
	if err != nil {
		return err
	}
	_, paths := drawZipf(slugs)
	if err := visitOnce(ctx, s.Short, paths[:min(2000, len(paths))]); err != nil {
		return err
	}
	rows := []figures{}
	for _, part := range []struct {
		what string
		do   func() (*exec.Cmd, error)
	}{
		{"no backup, for 30 s", func() (*exec.Cmd, error) { return nil, pause(ctx, 30*time.Second) }},
		{"the first backup", func() (*exec.Cmd, error) { return inChild(ctx, "backup", data, backups) }},
		{"the next backup", func() (*exec.Cmd, error) { return inChild(ctx, "backup", data, backups) }},
	} {
		before, err := sizeOf(backups)
		if err != nil {
			return err
		}
		f, err := s.beside(ctx, paths, part.do)
		if err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
		after, err := sizeOf(backups)
		if err != nil {
			return err
		}
		f.what, f.written = part.what, after-before
		rows = append(rows, f)
	}
	s.stop() // stop the server first so that the restore has the machine to itself
	began := time.Now()
	restored := filepath.Join(dir, "restored")
	cmd, err := inChild(ctx, "restore", filepath.Join(restored, "embedded"), backups)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	took := time.Since(began)
	again, err := startServer(ctx, "embedded", restored, "")
	if err != nil {
		return err
	}
	defer again.stop()
	if err := visitOnce(ctx, again.Short, paths[:1]); err != nil {
		return err
	}
	rto := time.Since(began)
	fmt.Printf("\n%-22s %8s %10s %12s %14s %14s %14s\n", "", "seconds", "written", "own CPU s", "server CPU s/s", "redirect p99", "create p99")
	for _, f := range rows {
		fmt.Printf("%-22s %8.1f %10s %12.1f %14.2f %14s %14s\n", f.what, f.took.Seconds(), megabytes(f.written), f.own.Seconds(),
			f.server.Seconds()/f.took.Seconds(), f.visits.Round(10*time.Microsecond), f.writes.Round(10*time.Microsecond))
	}
	fmt.Printf("%-22s %8.1f %10s %12.1f\n", "restore", took.Seconds(), "", (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	fmt.Printf("RTO: %.1f s from the start of the restore to the first redirect.\n", rto.Seconds())
	fmt.Printf("RPO: the changes since the last backup began, that is, the interval between backups plus %.1f s for the next backup.\n", rows[2].took.Seconds())
	return nil
}

// manyVideos is the default for BENCH_VIDEOS.
const manyVideos = 200

// figures holds the measurements of one row.
type figures struct {
	what           string
	took           time.Duration
	written        int64         // bytes
	own, server    time.Duration // CPU
	visits, writes time.Duration // p99
}

// beside sends requests to the server while do runs.
func (s *server) beside(ctx context.Context, paths []string, do func() (*exec.Cmd, error)) (f figures, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	var visits, writes []time.Duration
	var failed [2]error
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	defer client.CloseIdleConnections()
	group.Go(func() {
		visits, failed[0] = paced(ctx, backupVisits, func(i int) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Short+paths[i%len(paths)], http.NoBody)
			if err != nil {
				return err
			}
			req.Header.Set("User-Agent", userAgent)
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusFound {
				return fmt.Errorf("a redirect returned %s, want 302", resp.Status)
			}
			return nil
		})
	})
	group.Go(func() {
		writes, failed[1] = paced(ctx, backupWrites, func(i int) error {
			var out struct{}
			code, err := s.call(ctx, http.MethodPost, "/api/v1/links", map[string]string{"url": fmt.Sprintf("https://example.com/late/%d", i)}, &out)
			if err == nil && code != http.StatusCreated {
				err = fmt.Errorf("a create returned %d, want 201", code)
			}
			return err
		})
	})
	before, err := procstat.CPU(s.pid)
	if err != nil {
		return f, err
	}
	began := time.Now()
	cmd, err := do()
	if err != nil {
		return f, err
	}
	f.took = time.Since(began)
	after, err := procstat.CPU(s.pid)
	stop()
	group.Wait()
	if cmd != nil {
		f.own = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	f.server, f.visits, f.writes = after-before, quantile(visits, 0.99), quantile(writes, 0.99)
	return f, errors.Join(err, failed[0], failed[1])
}

// paced starts each call at its scheduled time, even if earlier calls are still running, until ctx
// is done. It returns how long each call took, measured from its scheduled time.
func paced(ctx context.Context, perSecond int, call func(i int) error) (took []time.Duration, failed error) {
	var mu sync.Mutex
	var group sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			group.Wait()
			return took, failed
		case began := <-tick.C:
			group.Go(func() {
				err := call(i)
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, time.Since(began))
				failed = errors.Join(failed, err)
			})
		}
	}
}

// inChild backs up or restores in a separate process, the way an operator does.
func inChild(ctx context.Context, what, data, backups string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, exe, "serve", what)
	cmd.Env = append(os.Environ(), "LINKREEL_DATA_DIR="+data, "BENCH_BACKUPS="+backups)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close() // keep it open until the function returns
	out, err := cmd.Output()
	fmt.Printf("  %s", out)
	return cmd, err
}

// serveBackup runs in the process that inChild starts for a backup.
func serveBackup(ctx context.Context) error {
	return standalone.Backup(ctx, os.Stdout, standalone.BackupOptions{Dir: os.Getenv("BENCH_BACKUPS")})
}

// serveRestore runs in the process that inChild starts for a restore.
func serveRestore(ctx context.Context) error {
	return standalone.Restore(ctx, io.Discard, standalone.RestoreOptions{Dir: os.Getenv("BENCH_BACKUPS")})
}

// serveEmbedded runs a whole stack on its own data directory. It fills a new directory with video
// files.
func serveEmbedded(ctx context.Context) error {
	dir := os.Getenv("BENCH_DIR")
	if _, err := os.Stat(filepath.Join(dir, "firestore.db")); errors.Is(err, os.ErrNotExist) {
		if err := fillObjects(ctx, filepath.Join(dir, "objects"), setting("BENCH_VIDEOS", manyVideos)); err != nil {
			return err
		}
	}
	s, err := standalone.Start(ctx, standalone.Config{DataDir: dir, StackFile: filepath.Join(dir, "stack.json"), Env: map[string]string{
		"LINKREEL_RATE_LIMITS": "enterprise:6000000", "LINKREEL_JANITOR_EVERY": "0", // the janitor would remove the files because no record refers to them
	}})
	if err != nil {
		return err
	}
	if err := announce(ready{Short: strings.Replace(strings.TrimPrefix(s.ShortBaseURL, "http://"), "localhost", "127.0.0.1", 1), Base: s.BaseURL, Key: s.Keys["enterprise"]}); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	return s.Close()
}

// fillObjects stores video files. Their bytes are random, so they cannot be compressed.
func fillObjects(ctx context.Context, dir string, videos int) error {
	s, err := storage.Open(storage.Options{Dir: dir, Buckets: []string{"linkreel-media"}})
	if err != nil {
		return err
	}
	api, random := s.APIHandler(), rand.NewChaCha8([32]byte{1})
	for i := range videos {
		for name, size := range filesOfVideo {
			b := make([]byte, size)
			_, _ = random.Read(b) // never fails
			req := httptest.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://localhost/upload/storage/v1/b/linkreel-media/o?uploadType=media&name=videos/vid_%d/1-1/%s", i, name), bytes.NewReader(b))
			w := httptest.NewRecorder()
			if api.ServeHTTP(w, req); w.Code != http.StatusOK {
				return errors.Join(fmt.Errorf("storing a file returned %d: %s", w.Code, w.Body), s.Close())
			}
		}
	}
	return s.Close()
}

// sizeOf returns the total size of all files under a folder, in bytes, or 0 if the folder does not
// exist.
func sizeOf(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

func megabytes(n int64) string { return fmt.Sprintf("%.0f MB", float64(n)/1e6) }
