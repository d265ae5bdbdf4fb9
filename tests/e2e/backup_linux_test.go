package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// fullDisk is an environment variable. If it is set, this test binary runs the program in its
// arguments as if its disk were full.
const fullDisk = "LINKREEL_TEST_FULL_DISK"

func init() {
	if os.Getenv(fullDisk) != "" {
		fmt.Fprintln(os.Stderr, runOnAFullDisk(os.Args[1:])) // it returns only if it failed
		os.Exit(1)
	}
}

// runOnAFullDisk executes a program with a seccomp filter that makes fsync fail with ENOSPC, as it
// does on a full network disk. Unlike a small test disk, a filter does not need any privileges.
func runOnAFullDisk(args []string) error {
	const prSetSeccomp, prSetNoNewPrivs, filterMode, retErrno, retAllow = 22, 38, 2, 0x00050000, 0x7fff0000
	filter := []syscall.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS, K: 0}, // the system call number
		{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, K: syscall.SYS_FSYNC, Jf: 1},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: retErrno | uint32(syscall.ENOSPC)},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: retAllow},
	}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // the filter belongs to the thread that executes the program
	if _, _, err := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); err != 0 {
		return err
	}
	if _, _, err := syscall.RawSyscall(syscall.SYS_PRCTL, prSetSeccomp, filterMode, uintptr(unsafe.Pointer(&program))); err != 0 {
		return err
	}
	return syscall.Exec(args[0], args, slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, fullDisk+"=") }))
}

// version is a state of a link. url is its destination, or "" if it was deleted. acknowledged is
// zero if no response confirmed the change. Such a change may or may not have taken effect.
type version struct {
	url                string
	sent, acknowledged time.Time
}

// writer creates, edits and deletes its own links, one change at a time. After a change that got no
// response, it leaves the link alone.
type writer struct {
	name  string
	mu    sync.Mutex
	links map[string][]version // by slug
	ids   map[string]string    // of links that exist, by slug
	slugs []string             // of the links in ids
}

// change makes change number n.
func (w *writer) change(s *load, n int) {
	if n%5 < 3 || len(w.slugs) == 0 {
		slug := fmt.Sprintf("%s-%d", w.name, n)
		body := map[string]any{"url": "https://example.com/" + slug, "slug": slug, "tags": []string{"all", fmt.Sprintf("%s-tag-%d", w.name, n%50)}}
		if n%2 == 0 {
			body["externalId"] = slug
		}
		if id, ok := w.send(s, slug, "https://example.com/"+slug, http.MethodPost, "", body); ok {
			w.ids[slug], w.slugs = id, append(w.slugs, slug)
		}
		return
	}
	at := n * 7 % len(w.slugs)
	slug := w.slugs[at]
	url, method, body := fmt.Sprintf("https://example.com/%s/%d", slug, n), http.MethodPatch, map[string]any{}
	if n%5 == 4 {
		url, method, body = "", http.MethodDelete, nil
	} else {
		body["url"], body["tags"] = url, []string{"all", fmt.Sprintf("%s-new-%d", w.name, n%50)}
	}
	if _, ok := w.send(s, slug, url, method, "/"+w.ids[slug], body); !ok || method == http.MethodDelete {
		w.slugs = slices.Delete(w.slugs, at, at+1)
	}
}

// send makes a change and records it. It does not retry.
func (w *writer) send(s *load, slug, url, method, path string, body map[string]any) (id string, ok bool) {
	v := version{url: url, sent: time.Now()}
	w.mu.Lock()
	w.links[slug] = append(w.links[slug], v)
	w.mu.Unlock()
	code, text, err := s.call(method, s.account.base+"/api/v1/links"+path, body)
	switch {
	case err != nil || code >= 500:
		s.lost.Add(1)
		return "", false
	case code/100 != 2:
		s.t.Errorf("%s %s returned %d, want success: %s", method, slug, code, text)
		return "", false
	}
	w.mu.Lock()
	w.links[slug][len(w.links[slug])-1].acknowledged = time.Now()
	w.mu.Unlock()
	s.acknowledged.Add(1)
	var made struct{ ID string }
	_ = json.Unmarshal(text, &made) // the response to a delete is empty
	return made.ID, true
}

// allowed returns the states that a link may have in a backup made between began and ended: the
// last state acknowledged before began, and the states sent after it and before ended.
func allowed(versions []version, began, ended time.Time) (urls []string) {
	urls = []string{""} // before the link was created
	for _, v := range versions {
		switch {
		case !v.acknowledged.IsZero() && v.acknowledged.Before(began):
			urls = []string{v.url}
		case v.sent.Before(ended):
			urls = append(urls, v.url)
		}
	}
	return urls
}

// shot is a video and the files that a player reads.
type shot struct {
	id     string
	erased bool
	// published is set if the last version was published before the program was killed.
	published bool
	bytes     map[string][sha256.Size]byte
}

// load is an installation that receives writes and visits.
type load struct {
	t       *testing.T
	i       *installation
	account *tenantOf
	client  *http.Client
	hot     []string // slugs that visitors request
	hotIDs  []string
	writers []*writer
	films   []*shot

	counted int64 // clicks

	visits, acknowledged, lost, missed atomic.Int64
	kills                              atomic.Int64 // of the program
	down                               atomic.Bool  // from a kill until the program is ready again
}

// call makes one request. It does not fail the test, so it may be called from any goroutine.
func (s *load) call(method, address string, body map[string]any) (code int, text []byte, err error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, address, in)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.account.key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	text, err = io.ReadAll(resp.Body)
	return resp.StatusCode, text, err
}

// visit requests one of the links. These links never change, so each visit must be redirected,
// unless the stack was killed.
func (s *load) visit(n int) {
	kills, down := s.kills.Load(), s.down.Load()
	s.visits.Add(1)
	code, _, err := s.call(http.MethodGet, s.i.short()+"/"+s.hot[n%len(s.hot)], nil)
	if err == nil && code == http.StatusFound {
		return
	}
	s.missed.Add(1)
	if !down && !s.down.Load() && s.kills.Load() == kills {
		s.t.Errorf("a redirect while the stack was running returned %d, want 302: %v", code, err)
	}
}

// short returns the base URL for the installation's short links. It is the same after a restart.
func (i *installation) short() string { return fmt.Sprintf("http://127.0.0.1:%d", i.base+1) }

// start sends visits and writes at the given rates until the returned function is called.
func (s *load) start(visits, writes float64) (stop func()) {
	var group sync.WaitGroup
	done := make(chan struct{})
	paced := func(perSecond float64, do func(n int)) {
		group.Go(func() {
			var calls sync.WaitGroup
			defer calls.Wait()
			tick := time.NewTicker(time.Duration(float64(time.Second) / perSecond))
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-tick.C:
					calls.Go(func() { do(n) })
				}
			}
		})
	}
	paced(visits, s.visit)
	for w := range s.writers { // each makes one change at a time, so the next tick does not start a second one
		writer, busy := s.writers[w], make(chan struct{}, 1)
		paced(writes/float64(len(s.writers)), func(n int) {
			select {
			case busy <- struct{}{}:
				writer.change(s, n)
				<-busy
			default: // the last change has no response yet
			}
		})
	}
	return sync.OnceFunc(func() { close(done); group.Wait() })
}

// taken is a complete backup.
type taken struct {
	name         string
	began, ended time.Time
	clicks       int64 // of the visited links, counted before it began
	visits       int64 // made before it ended
	films        []shot
}

// backup starts `linkreel backup`, through a wrapper if one is given.
func (s *load) backup(dir string, wrapper ...string) (*exec.Cmd, *bytes.Buffer) {
	s.t.Helper()
	bin, err := program()
	check(s.t, err)
	args := append(wrapper, bin, "backup", dir)
	cmd, out := exec.CommandContext(s.t.Context(), args[0], args[1:]...), &bytes.Buffer{}
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.i.dir, out, out
	cmd.Env = os.Environ()
	if len(wrapper) > 0 {
		cmd.Env = append(cmd.Env, fullDisk+"=1")
	}
	check(s.t, cmd.Start())
	return cmd, out
}

// complete makes a backup, which must succeed.
func (s *load) complete(dir string) taken {
	s.t.Helper()
	s.counted = max(s.counted, s.clicks())
	b := taken{clicks: s.counted}
	for _, f := range s.films {
		b.films = append(b.films, *f)
	}
	b.began = time.Now()
	cmd, out := s.backup(dir)
	if err := cmd.Wait(); err != nil {
		s.t.Fatalf("the backup failed: %v\n%s", err, out)
	}
	b.ended, b.visits = time.Now(), s.visits.Load()
	names := backups(s.t, dir)
	b.name = names[len(names)-1]
	return b
}

// clicks returns the number of counted clicks on the visited links, or 0 while the stack is down.
func (s *load) clicks() (sum int64) {
	for _, id := range s.hotIDs {
		_, text, err := s.call(http.MethodGet, s.account.base+"/api/v1/links/"+id, nil)
		var l struct{ Clicks int64 }
		if err != nil || json.Unmarshal(text, &l) != nil {
			return 0
		}
		sum += l.Clicks
	}
	return sum
}

// backups returns the names of the complete backups in a folder, oldest first.
func backups(t testing.TB, dir string) (names []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "2*Z"))
	check(t, err)
	for _, path := range found {
		names = append(names, filepath.Base(path))
	}
	slices.Sort(names)
	return names
}

// killBackup kills a backup after it has copied the given number of objects, or as it starts if
// objects is 0. It reports whether the backup was still running.
func (s *load) killBackup(dir string, objects int) bool {
	s.t.Helper()
	before := backups(s.t, dir)
	cmd, out := s.backup(dir)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		part, _ := filepath.Glob(filepath.Join(dir, "*.part"))
		copied, _ := os.ReadDir(filepath.Join(dir, "objects"))
		select {
		case err := <-ended:
			if err != nil {
				s.t.Fatalf("the backup finished before it could be killed: %v\n%s", err, out)
			}
			return false
		case <-time.After(time.Millisecond):
		}
		if len(part) > 0 && len(copied) >= objects {
			break
		}
	}
	_ = cmd.Process.Kill() // it may have already exited
	var exit *exec.ExitError
	died := errors.As(<-ended, &exit)
	if now := backups(s.t, dir); died && !slices.Equal(now, before) {
		s.t.Errorf("after a killed backup, the complete backups are %v, want %v", now, before)
	}
	return died
}

// upload creates a video and uploads a file for it.
func (s *load) upload(path string) *shot {
	s.t.Helper()
	made := s.account.surely(201, "POST", "/api/v1/videos", map[string]any{"title": "Film"})
	if a := put(s.t, made.str("uploadUrl"), path, "video/mp4"); a.status != 200 {
		s.t.Fatalf("the upload returned %d, want 200: %s", a.status, a.raw)
	}
	f := &shot{id: made.str("videoId")}
	s.films = append(s.films, f)
	return f
}

// isReady waits until a video is ready, and returns hashes of the files that a player reads, by
// path.
func (a *tenantOf) isReady(id string) map[string][sha256.Size]byte {
	a.t.Helper()
	var v *answer
	eventually(a.t, 3*time.Minute, "video "+id+" is ready", func() bool {
		v = a.surely(200, "GET", "/api/v1/videos/"+id, nil)
		return v.str("status") == "ready"
	})
	read := map[string][sha256.Size]byte{}
	note := func(address string) {
		got := visit(a.t, address)
		path, _, _ := strings.Cut(address, "?")
		_, path, _ = strings.Cut(strings.TrimPrefix(path, "http://"), "/")
		if got.status != 200 || len(got.raw) == 0 {
			a.t.Errorf("%s for video %s returned %d with %d bytes, want 200 with content", path, id, got.status, len(got.raw))
		}
		read[path] = sha256.Sum256(got.raw)
	}
	note(v.str("posterUrl"))
	master := visit(a.t, v.str("playbackUrl"))
	for _, playlist := range uris(a.t, v.str("playbackUrl"), string(master.raw)) {
		files := uris(a.t, playlist, string(visit(a.t, playlist).raw))
		slices.Sort(files)
		for _, file := range slices.Compact(files) {
			note(file)
		}
	}
	if master.status != 200 || len(read) < 2 {
		a.t.Errorf("video %s has %d files, want at least 2 (the master playlist returned %d)", id, len(read), master.status)
	}
	return read
}

// finished waits until a video is ready and its last version is published. Before that, a restart
// prepares the video again in a new attempt. finished returns the video's files.
func (s *load) finished(f *shot) map[string][sha256.Size]byte {
	s.t.Helper()
	eventually(s.t, 3*time.Minute, "the last version of video "+f.id+" is published", func() bool { return f.published || s.published(f) })
	return s.account.isReady(f.id)
}

// published reports whether the program's log says that the last version of the video is published.
// A restart truncates the log.
func (s *load) published(f *shot) bool {
	s.t.Helper()
	text, err := os.ReadFile(s.data("linkreel.log"))
	check(s.t, err)
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `"video published"`) && strings.Contains(line, f.id) && strings.Contains(line, `"final":true`) {
			return true
		}
	}
	return false
}

// same checks that a video has the same files as before.
func (s *load) same(f *shot, files map[string][sha256.Size]byte) {
	s.t.Helper()
	for path, was := range f.bytes {
		if is, there := files[path]; is != was {
			s.t.Errorf("%s for video %s has changed (it exists: %t; all files: %v)", path, f.id, there, slices.Sorted(maps.Keys(files)))
		}
	}
}

// play decodes a complete video as a player does.
func (a *tenantOf) play(id string) {
	a.t.Helper()
	v := a.surely(200, "GET", "/api/v1/videos/"+id, nil)
	out, err := exec.CommandContext(a.t.Context(), "ffprobe", "-v", "error", "-count_frames", "-select_streams", "v:0",
		"-show_entries", "stream=nb_read_frames", "-of", "default=nw=1:nk=1", v.str("playbackUrl")).CombinedOutput()
	frames, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if n, convErr := strconv.Atoi(frames); err != nil || convErr != nil || n < 30 {
		a.t.Errorf("video %s cannot be decoded to 30 frames or more: %v\n%s", id, err, out)
	}
}

// documents are the records in a database, by path.
type documents map[string]map[string]any

// text returns a field as text, even if the database does not store it as a string.
func (d documents) text(path, field string) string {
	v, _ := d[path][field].(map[string]any)
	for _, x := range v {
		s, _ := x.(string)
		return s
	}
	return ""
}

func (d documents) number(path, field string) int64 {
	n, _ := strconv.ParseInt(d.text(path, field), 10, 64) // 0 if the field is missing
	return n
}

// list returns a field that contains an array of strings.
func (d documents) list(path, field string) (values []string) {
	var v struct {
		ArrayValue struct {
			Values []struct{ StringValue string }
		}
	}
	raw, _ := json.Marshal(d[path][field]) // cannot fail because the value comes from JSON
	_ = json.Unmarshal(raw, &v)            // empty if the field is missing
	for _, x := range v.ArrayValue.Values {
		values = append(values, x.StringValue)
	}
	return values
}

// recordsOf reads the records in a data directory that no program is using.
func recordsOf(t *testing.T, dir string) documents {
	t.Helper()
	server, err := firestore.Open(firestore.Options{Path: filepath.Join(dir, "firestore.db"), TTLInterval: -1})
	check(t, err)
	var dump bytes.Buffer
	check(t, server.Export(t.Context(), &dump))
	check(t, server.Close())
	found := documents{}
	for line := range bytes.Lines(dump.Bytes()) {
		var d struct {
			Name   string
			Fields map[string]any
		}
		check(t, json.Unmarshal(line, &d))
		_, path, _ := strings.Cut(d.Name, "/documents/")
		found[path] = d.Fields
	}
	return found
}

// halves describes each record whose counterpart from the same commit is missing.
func (d documents) halves() (found []string) {
	say := func(format string, a ...any) { found = append(found, fmt.Sprintf(format, a...)) }
	tags, owners, days, links := map[string]bool{}, map[string]bool{}, map[string]int64{}, map[string]int64{}
	for path := range d {
		parts := strings.Split(path, "/")
		switch parts[0] {
		case "tags":
			tags[d.text(path, "accountId")+" "+d.text(path, "kind")+" "+d.text(path, "name")] = true
		case "linkExternalIds":
			owners[d.text(path, "link")] = true
		case "links":
			if len(parts) == 4 {
				days[parts[1]] += d.number(path, "clicks")
			} else {
				links[d.text(path, "accountId")]++
			}
		}
	}
	for path := range d {
		parts := strings.Split(path, "/")
		if len(parts) != 2 {
			continue
		}
		id := parts[1]
		switch parts[0] {
		case "links":
			slug := "slugs/default|" + strings.ToLower(d.text(path, "slug"))
			for _, field := range []string{"accountId", "slug", "location"} {
				if d.text(slug, field) != d.text(path, field) {
					say("link %s and its slug differ in %s: %q, %q", id, field, d.text(path, field), d.text(slug, field))
				}
			}
			if d.text(slug, "linkId") != id {
				say("the slug of link %s belongs to %q", id, d.text(slug, "linkId"))
			}
			for _, tag := range d.list(path, "tags") {
				if !tags[d.text(path, "accountId")+" link "+tag] {
					say("link %s has the tag %q, but the account does not", id, tag)
				}
			}
			if d.text(path, "externalId") != "" && !owners[id] {
				say("the external ID of link %s has no record", id)
			}
			if days[id] != d.number(path, "clicks") {
				say("link %s has %d clicks, but the sum of its days is %d", id, d.number(path, "clicks"), days[id])
			}
		case "slugs":
			if to := d.text(path, "linkId"); to != "" && d["links/"+to] == nil {
				say("slug %s belongs to link %s, which is missing", id, to)
			}
		case "linkExternalIds":
			if to := d.text(path, "link"); d["links/"+to] == nil {
				say("an external ID belongs to link %s, which is missing", to)
			}
		case "videos":
			if of := d.text("videoSlugs/"+d.text(path, "slug"), "videoId"); of != id {
				say("the slug of video %s belongs to %q", id, of)
			}
		}
	}
	for account, n := range links {
		path := "quotas/" + account + "~links"
		var ledger struct{ Granted int64 }
		if err := json.Unmarshal([]byte(d.text(path, "state")), &ledger); d[path] != nil && (err != nil || ledger.Granted < n) {
			say("account %s has %d links, but its ledger has granted %d (%v)", account, n, ledger.Granted, err)
		}
	}
	slices.Sort(found)
	return found
}

// untold describes each link and video whose events do not match its record. The commit that makes
// a change also writes its event.
func (d documents) untold(account string, feed []told) (found []string) {
	alive := map[string]bool{}
	for _, e := range feed {
		switch e.Type {
		case "link.created", "video.created":
			alive[e.Object] = true
		case "link.deleted", "video.deleted":
			delete(alive, e.Object)
		}
	}
	for path := range d {
		parts := strings.Split(path, "/")
		if len(parts) != 2 || parts[0] != "links" && parts[0] != "videos" || d.text(path, "accountId") != account {
			continue
		}
		if !alive[parts[1]] {
			found = append(found, path+" has no event")
		}
		delete(alive, parts[1])
	}
	for id := range alive {
		found = append(found, id+" has an event but no record")
	}
	return found
}

// holds checks a restored data directory against the writes that were acknowledged before its
// backup.
func (s *load) holds(b taken, dir string) (d documents) {
	s.t.Helper()
	d = recordsOf(s.t, dir)
	if halves := d.halves(); len(halves) > 0 {
		s.t.Errorf("%d records lack their counterpart from the same commit: %.2000s", len(halves), strings.Join(halves, "\n"))
	}
	if d["quotas/"+s.account.id+"~links"] == nil {
		s.t.Error("the account has no ledger for its links")
	}
	links, sure := 0, 0
	for _, w := range s.writers {
		for slug, versions := range w.links {
			may, is := allowed(versions, b.began, b.ended), ""
			if id := d.text("slugs/default|"+slug, "linkId"); id != "" {
				is = d.text("links/"+id, "url")
			}
			if !slices.Contains(may, is) {
				s.t.Errorf("link %s has the destination %q, want one of %q; its versions are %+v; the backup was made from %v to %v", slug, is, may, versions, b.began, b.ended)
			}
			links++
			if len(may) == 1 {
				sure++
			}
		}
	}
	var clicks int64
	for _, id := range s.hotIDs {
		clicks += d.number("links/"+id, "clicks")
	}
	if clicks < b.clicks || clicks > b.visits {
		s.t.Errorf("the restored links have %d clicks, want between %d (counted before the backup) and %d (visits before it finished)", clicks, b.clicks, b.visits)
	}
	s.t.Logf("%s: %d records; %d of %d links had one allowed state; %d clicks (%d counted before the backup, %d visits)",
		b.name, len(d), sure, links, clicks, b.clicks, b.visits)
	return d
}

// restore restores a backup into an empty folder.
func (s *load) restore(b taken, dir, data string) (took time.Duration) {
	s.t.Helper()
	began := time.Now()
	bin, err := program()
	check(s.t, err)
	cmd := exec.CommandContext(s.t.Context(), bin, "restore", "--backup", b.name, "--secrets", s.data("secrets.json"), "--audit", s.data("audit"), dir)
	cmd.Env = append(os.Environ(), "LINKREEL_DATA_DIR="+data)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("the restore of %s failed: %v\n%s", b.name, err, out)
	}
	return time.Since(began)
}

// data returns the path of a file in the data directory.
func (s *load) data(name string) string { return filepath.Join(s.i.dir, ".local", "data", name) }

// restored restores a backup on an empty machine and checks it. Then it starts the restored
// installation and plays every video.
func (s *load) restored(b taken, dir string) {
	s.t.Helper()
	data := filepath.Join(s.t.TempDir(), "data")
	took := s.restore(b, dir, data)
	records := s.holds(b, data)

	again := &installation{t: s.t, dir: s.t.TempDir(), base: fourFreePorts(s.t), env: s.i.env, data: data}
	p, stack := again.up()
	defer p.kill()
	account := *s.account
	account.caller = &caller{t: s.t, base: stack.BaseURL, key: s.account.key, http: s.account.http}
	for _, slug := range s.hot {
		if got := visit(s.t, stack.ShortBaseURL+"/"+slug); got.status != http.StatusFound {
			s.t.Errorf("link %s returned %d, want 302", slug, got.status)
		}
	}
	untold := records.untold(account.id, account.feed())
	for end := time.Now().Add(30 * time.Second); len(untold) > 0 && time.Now().Before(end); { // only the restored program assigns the newest events their positions in the feed
		untold = records.untold(account.id, account.feed())
	}
	if len(untold) > 0 {
		s.t.Errorf("%d records do not match their events: %.2000s", len(untold), strings.Join(untold, "\n"))
	}
	played := 0
	for n, f := range b.films {
		if f.erased {
			if got := account.do("GET", "/api/v1/videos/"+f.id, nil); got.status != http.StatusNotFound {
				s.t.Errorf("the deleted video %s returned %d, want 404", f.id, got.status)
			}
			continue
		}
		// A video that was being prepared is prepared again, so its files are new.
		s.same(&f, account.isReady(f.id))
		if n == len(b.films)-1 {
			account.play(f.id)
		}
		played++
	}
	s.t.Logf("%s: restored in %.1f s; %d of %d videos play, the rest were deleted", b.name, took.Seconds(), played, len(b.films))
}

// TestBackupsUnderLoadAndKills backs up a program while it receives writes and visits. Some backups
// are killed or run out of disk space, and the program is killed during one of them. Each complete
// backup must contain every write that was acknowledged before the backup began, and must never
// contain only part of a write. Its videos must play. With LINKREEL_FULL, at least 50 changes and
// 500 visits a second must succeed, and the test kills the program 10 times.
func TestBackupsUnderLoadAndKills(t *testing.T) {
	t.Parallel()
	visits, writes, rounds, backupKills, changes := 50., 20., 1, 2, 25 // changes is the number of changes in half a round
	full := os.Getenv("LINKREEL_FULL") != ""
	if full {
		visits, writes, rounds, backupKills, changes = 500, 50, 10, 6, 750
	}
	i := install(t)
	i.env = append(i.env, quickly...)
	i.env = append(i.env, "LINKREEL_RATE_LIMITS=enterprise:6000000", "LINKREEL_QUOTA_LINKS=enterprise:1000000")
	p, stack := i.up()
	s := &load{t: t, i: i, account: newTenant(t, stack, "Loaded"), client: &http.Client{
		Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	for n := range 5 {
		slug := fmt.Sprintf("hot-%d", n)
		s.hot = append(s.hot, slug)
		s.hotIDs = append(s.hotIDs, s.account.want(201, "POST", "/api/v1/links", map[string]any{"url": "https://example.com/hot", "slug": slug}).str("id"))
	}
	for n := range 20 { // enough of them to reach the rate with one change at a time each
		s.writers = append(s.writers, &writer{name: fmt.Sprint("w", n), links: map[string][]version{}, ids: map[string]string{}})
	}
	path := clip(t, 2, "320x180")
	first := s.upload(path)
	first.bytes = s.finished(first)
	const more = 1.05 // plan for 5% more because some of the planned requests fail or are not made
	stop := s.start(more*visits, more*writes)
	defer stop()
	began, dir := time.Now(), t.TempDir()
	var all []taken
	killed, down := 0, time.Duration(0)
	enough := func() {
		t.Helper()
		wanted := s.acknowledged.Load() + int64(changes)
		eventually(t, 5*time.Minute, "enough changes are acknowledged", func() bool { return s.acknowledged.Load() >= wanted })
	}
	for round := range rounds {
		enough()
		for n := range backupKills {
			objects := 0
			if n > 0 {
				found, err := os.ReadDir(filepath.Join(dir, "objects"))
				check(t, err)
				objects = len(found) + rand.IntN(3)
			}
			if s.killBackup(dir, objects) {
				killed++
			}
		}
		all = append(all, s.complete(dir))
		before := backups(t, dir)
		cmd, out := s.backup(dir, os.Args[0])
		if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), "is full: free some space") || !slices.Equal(backups(t, dir), before) {
			t.Errorf("a backup on a full disk returned %v, want an error about the full disk and no new backup: %s", err, out)
		}
		unfinished := s.upload(path)
		enough()

		// Kill the program while a backup is running and a video is being prepared.
		cmd, out = s.backup(dir)
		eventually(t, 30*time.Second, "the backup has begun", func() bool {
			part, _ := filepath.Glob(filepath.Join(dir, "*.part"))
			return len(part) > 0 || len(backups(t, dir)) > len(before)
		})
		died := time.Now()
		s.down.Store(true)
		s.kills.Add(1)
		p.kill()
		if err := cmd.Wait(); err != nil && !slices.Equal(backups(t, dir), before) {
			t.Errorf("a failed backup of a killed program left a new backup: %v, %s", err, out)
		}
		all = append(all, s.complete(dir)) // from the data directory
		unfinished.published = s.published(unfinished)
		p, _ = i.up()
		s.down.Store(false)
		down += time.Since(died)
		if round%2 == 0 {
			s.account.surely(204, "DELETE", "/api/v1/videos/"+s.films[round].id, nil)
			s.films[round].erased = true
		}
		unfinished.bytes = s.finished(unfinished)
		all = append(all, s.complete(dir))
	}
	took := time.Since(began)
	stop()
	made, acknowledged := s.visits.Load(), s.acknowledged.Load()
	t.Logf("%d backups, %d killed, %d on a full disk, %d kills of the program; in %.0f s, %.0f of them down, %d visits (%d without a response) and %d acknowledged changes (%d without a response)",
		len(all), killed, rounds, rounds, took.Seconds(), down.Seconds(), made, s.missed.Load(), acknowledged, s.lost.Load())
	if killed == 0 {
		t.Error("every backup finished before it could be killed, want at least one killed backup")
	}
	up := (took - down).Seconds()
	visited, changed := float64(made-s.missed.Load())/up, float64(acknowledged)/up
	share := 0.2 // the short form also runs on busy machines
	if full {
		share = 1
	}
	if visited < share*visits || changed < share*writes {
		t.Errorf("%.1f visits and %.1f changes a second succeeded, want at least %.0f and %.0f", visited, changed, share*visits, share*writes)
	}
	i.interrupt(p)
	for _, b := range all {
		s.restored(b, dir)
	}
}

// TestANewerStateOutlivesARestore restores older records while the bucket keeps its newer objects,
// as happens when only the database is restored. Objects that the older records do not refer to
// must not be deleted. After that, the test returns to the newer records, and every video must
// play.
func TestANewerStateOutlivesARestore(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.env = append(i.env, quickly...)
	p, stack := i.up()
	s := &load{t: t, i: i, account: newTenant(t, stack, "Goes back")}
	path := clip(t, 2, "320x180")
	old := s.upload(path)
	old.bytes = s.finished(old)
	busy, dir := s.upload(path), t.TempDir()
	b := s.complete(dir)
	busy.bytes = s.finished(busy)
	added := s.upload(path)
	added.bytes = s.finished(added)
	i.interrupt(p)

	// Redis contains changes that the restored records lack, so give it an empty data directory.
	exchange := func(records, keep string) {
		t.Helper()
		check(t, os.Rename(s.data("firestore.db"), keep))
		check(t, os.Rename(records, s.data("firestore.db")))
		check(t, os.RemoveAll(s.data("redis")))
	}
	older, newer := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "newer.db")
	s.restore(b, dir, older)
	exchange(filepath.Join(older, "firestore.db"), newer)
	p, _ = i.up()
	s.same(old, s.account.isReady(old.id))
	if got := s.account.do("GET", "/api/v1/videos/"+added.id, nil); got.status != http.StatusNotFound {
		t.Errorf("a video created after the backup returned %d, want 404", got.status)
	}
	if files := s.finished(busy); len(files) != len(busy.bytes) { // the restored program prepares it again
		t.Errorf("the video that was being prepared has %d files, want %d", len(files), len(busy.bytes))
	}
	i.interrupt(p)

	exchange(newer, filepath.Join(t.TempDir(), "older.db"))
	p, _ = i.up()
	for _, f := range s.films {
		s.same(f, s.account.isReady(f.id))
		s.account.play(f.id)
	}
	i.interrupt(p)
}
