package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gcfirestore "cloud.google.com/go/firestore"
	gcs "cloud.google.com/go/storage"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
)

// serve runs the program until the test ends or stop is called. It returns the parsed
// localcloud.json.
func serve(t *testing.T, dir string, args ...string) (d description, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	args = append([]string{"--data-dir", dir, "--firestore-addr", "127.0.0.1:0", "--storage-addr", "127.0.0.1:0", "--storage-api-addr", "localhost:0"}, args...)
	go func() { done <- run(ctx, args, io.Discard, io.Discard) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run returned %v, want no error", err)
		}
	}
	t.Cleanup(stop)
	for {
		b, err := os.ReadFile(filepath.Join(dir, "localcloud.json"))
		if err == nil {
			if err := json.Unmarshal(b, &d); err != nil {
				t.Fatal(err)
			}
			return d, stop
		}
		select {
		case err := <-done:
			done <- err
			t.Fatalf("run returned before it was ready: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestTheProgramServesBothAndKeepsDataOverARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	story := func(d description, write bool) {
		conn, err := grpc.NewClient(d.FirestoreAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		fire, err := gcfirestore.NewClient(t.Context(), "p", option.WithGRPCConn(conn))
		if err != nil {
			t.Fatal(err)
		}
		defer fire.Close()
		store, err := gcs.NewClient(t.Context(), option.WithEndpoint(d.StorageAPIURL+"/storage/v1/"), option.WithoutAuthentication(), gcs.WithJSONReads())
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		key, err := os.ReadFile(d.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		var k struct {
			Email string `json:"client_email"`
			PEM   string `json:"private_key"`
		}
		if err := json.Unmarshal(key, &k); err != nil {
			t.Fatal(err)
		}
		sign := func(method string) string {
			u, err := gcs.SignedURL("media", "o", &gcs.SignedURLOptions{GoogleAccessID: k.Email, PrivateKey: []byte(k.PEM), Method: method,
				Expires: time.Now().Add(time.Hour), Scheme: gcs.SigningSchemeV4, Insecure: true, Hostname: strings.TrimPrefix(d.StorageURL, "http://")})
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		if write {
			if _, err := fire.Doc("c/d").Set(t.Context(), map[string]any{"a": 1}); err != nil {
				t.Fatal(err)
			}
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, sign("PUT"), strings.NewReader("bytes"))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("the PUT returned %s, want 200", resp.Status)
			}
		}
		if s, err := fire.Doc("c/d").Get(t.Context()); err != nil || s.Data()["a"] != int64(1) {
			t.Errorf("after the restart, the document is missing or wrong: %v", err)
		}
		resp, err := http.Get(sign("GET"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "bytes" {
			t.Errorf("after the restart, the object is %q (error %v), want \"bytes\"", b, err)
		}
		if a, err := store.Bucket("media").Object("o").Attrs(t.Context()); err != nil || a.Size != 5 {
			t.Errorf("the object's attributes are %+v (error %v), want a size of 5", a, err)
		}
		health, err := http.Get(d.HealthURL)
		if err != nil || health.StatusCode != http.StatusOK {
			t.Errorf("the health check failed: %v", err)
		} else {
			health.Body.Close()
		}
	}
	d, stop := serve(t, dir, "--bucket", "media")
	if fi, err := os.Stat(d.KeyFile); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the key file has mode %v (error %v), want 0600", fi.Mode(), err)
	}
	story(d, true)
	stop()
	if _, err := os.Stat(filepath.Join(dir, "localcloud.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat of localcloud.json after stopping = %v, want ErrNotExist", err)
	}
	d, _ = serve(t, dir, "--bucket", "media")
	story(d, false)
}

func TestAddressesBeyondThisMachineNeedPermission(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0"} {
		for _, f := range []string{"--firestore-addr", "--storage-addr", "--storage-api-addr", "--admin-addr", "--backup-addr"} {
			err := run(t.Context(), []string{"--data-dir", t.TempDir(), "--backup-token-file", writeToken(t, strings.Repeat("b", 32)), f, addr}, io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), "--allow-remote") {
				t.Errorf("run with %s %s returned %v, want an error that mentions --allow-remote", f, addr, err)
			}
		}
	}
}

// writeToken creates a token file and returns its path.
func writeToken(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestItListensBeyondLoopbackOnlyUnderAToken(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("g", 32)
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no token file":            {nil, "--token-file"},
		"a missing file":           {[]string{"--token-file", filepath.Join(t.TempDir(), "none")}, "read token"},
		"an empty file":            {[]string{"--token-file", writeToken(t, "\n")}, "is empty"},
		"a short token":            {[]string{"--token-file", writeToken(t, "hunter2")}, "32 or more"},
		"an empty token in a list": {[]string{"--token-file", writeToken(t, good+",")}, "32 or more"},
	} {
		for _, f := range []string{"--firestore-addr", "--storage-addr", "--storage-api-addr"} {
			args := []string{"--data-dir", t.TempDir(), "--firestore-addr", "127.0.0.1:0", "--storage-addr", "127.0.0.1:0", "--storage-api-addr", "127.0.0.1:0", "--allow-remote", f, "0.0.0.0:0"}
			err := run(t.Context(), append(args, tc.args...), io.Discard, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: run with a public %s returned %v, want an error with %q", name, f, err, tc.want)
			}
		}
	}
	// Health checks do not need a token. With a token, the program accepts addresses other than
	// loopback.
	d, _ := serve(t, t.TempDir(), "--allow-remote", "--storage-api-addr", "0.0.0.0:0", "--firestore-addr", "0.0.0.0:0", "--token-file", writeToken(t, good+"\n"))
	for path, want := range map[string]int{"/readyz": 200, "/livez": 200, "/oauth2/v3/certs": 200, "/storage/v1/b": 401, "/linkreel/x": 401} {
		r, err := http.Get(strings.TrimSuffix(d.StorageAPIURL, "/") + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("GET %s without the token returned %d, want %d", path, r.StatusCode, want)
		}
	}
	var printed strings.Builder
	if d.print(&printed); strings.Contains(printed.String(), "EMULATOR_HOST") || strings.Contains(printed.String(), good) {
		t.Errorf("the output contains the token or settings that do not work with a token:\n%s", printed.String())
	}
}

// TestBackupsNeedTheirOwnToken takes backups from the running program, which must reject the
// storage API's token.
func TestBackupsNeedTheirOwnToken(t *testing.T) {
	t.Parallel()
	api, own := strings.Repeat("a", 32), strings.Repeat("b", 32)
	d, _ := serve(t, t.TempDir(), "--token-file", writeToken(t, api), "--backup-addr", "127.0.0.1:0", "--backup-token-file", writeToken(t, own+"\n"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.StorageAPIURL+"/upload/storage/v1/b/linkreel/o?uploadType=media&name=film", strings.NewReader("film"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+api)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for name, o := range map[string]backup.Options{
		"no token": {URL: d.BackupURL}, "the API's token": {URL: d.BackupURL, Token: api},
		"the API's port": {URL: d.StorageAPIURL + "/-/backup", Token: own}, "the signed URLs' port": {URL: d.StorageURL + "/-/backup", Token: own},
	} {
		o.Dir = t.TempDir()
		if _, err := backup.Take(t.Context(), o); err == nil {
			t.Errorf("%s: Take succeeded, want an error", name)
		}
	}
	m, err := backup.Take(t.Context(), backup.Options{Dir: t.TempDir(), URL: d.BackupURL, Token: own})
	if err != nil || len(m.Objects) != 1 {
		t.Errorf("the backup is %+v (error %v), want one object", m, err)
	}
}

func TestBadArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"stray"}, {"--no-such-flag"}, {"--indexes", bad}, {"--indexes", bad + ".missing"}, {"--cors-file", bad}, {"--bucket", "Not Valid"}, {"--backup-addr", "127.0.0.1:0"}} {
		args = append([]string{"--data-dir", t.TempDir(), "--firestore-addr", "127.0.0.1:0", "--storage-addr", "127.0.0.1:0", "--storage-api-addr", "127.0.0.1:0"}, args...)
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("run accepted the arguments %v, want an error", args)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("run with -h returned %v, want flag.ErrHelp", err)
	}
}

// TestNodeClients runs the workflow of the Go tests against the program, with Google's Node clients
// for both services.
func TestNodeClients(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed (Debian's package has 500 dependencies); the Go client tests cover the same workflow")
	}
	src, err := filepath.Abs("../../nodesmoke")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	dir := nodePackages(ctx, t, src)
	data := t.TempDir()
	d, _ := serve(t, data, "--bucket", "media")
	smoke := exec.CommandContext(ctx, "node", filepath.Join(dir, "smoke.mjs"), filepath.Join(data, "localcloud.json"))
	smoke.Env = append(os.Environ(), "FIRESTORE_EMULATOR_HOST="+d.FirestoreAddr, "METADATA_SERVER_DETECTION=none")
	out, err := smoke.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// nodePackages returns a folder with a copy of the program in src and the packages in its lockfile.
// It keeps the packages in the user's cache for the next run.
func nodePackages(ctx context.Context, t *testing.T, src string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	lock, err := os.ReadFile(filepath.Join(src, "package-lock.json"))
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "linkreel-tests", fmt.Sprintf("node-%x", sha256.Sum256(lock)))
	if err := os.MkdirAll(filepath.Dir(cache), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(cache); err != nil {
		fresh, err := os.MkdirTemp(filepath.Dir(cache), "node-")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"package.json", "package-lock.json"} {
			copyFile(t, filepath.Join(src, f), filepath.Join(fresh, f))
		}
		install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
		install.Dir = fresh
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("npm cannot install the clients: %v\n%s", err, out)
		}
		if err := os.Rename(fresh, cache); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	copyFile(t, filepath.Join(src, "smoke.mjs"), filepath.Join(dir, "smoke.mjs"))
	if err := os.Symlink(filepath.Join(cache, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSizesHaveUnits(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{"0": 0, "1048576": 1 << 20, "512Mi": 512 << 20, "10Gi": 10 << 30, "5Ti": 5 << 40, "-1": -1, "1.5Gi": -1, "9999999Ti": -1, "": -1, "Gi": -1} {
		got := size(-1)
		if err := got.Set(in); int64(got) != want || (err != nil) != (want < 0) {
			t.Errorf("Set(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
}

// The flags that the chart sets for a limit, a separate directory and reserved space must take
// effect.
func TestUploadsAreBoundedFromTheCommandLine(t *testing.T) {
	t.Parallel()
	objects := t.TempDir()
	d, _ := serve(t, t.TempDir(), "--bucket", "media", "--objects-dir", objects, "--max-upload-bytes", "1Ki", "--reserve-bytes", "1Mi")
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200} {
		resp, err := http.Get(d.StorageAPIURL + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("the upload to %s returned %s", path, resp.Status)
		}
	}
	store, err := gcs.NewClient(t.Context(), option.WithEndpoint(d.StorageAPIURL+"/storage/v1/"), option.WithoutAuthentication(), gcs.WithJSONReads())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	w := store.Bucket("media").Object("o").NewWriter(t.Context())
	if _, err := io.WriteString(w, "bytes"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(filepath.Join(objects, "data")); err != nil || len(files) != 1 {
		t.Errorf("the directory for objects contains %v (error %v), want one file", files, err)
	}
}

// metric reads one series from /metrics. It returns -1 if the series is missing.
func metric(t *testing.T, d description, series string) float64 {
	t.Helper()
	res, err := http.Get(d.MetricsURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	return -1
}

// clients returns Google's clients for a program that does not require a token.
func clients(t *testing.T, d description) (*gcfirestore.Client, *gcs.BucketHandle) {
	t.Helper()
	conn, err := grpc.NewClient(d.FirestoreAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	fire, err := gcfirestore.NewClient(t.Context(), "p", option.WithGRPCConn(conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fire.Close() })
	store, err := gcs.NewClient(t.Context(), option.WithEndpoint(d.StorageAPIURL+"/storage/v1/"), option.WithoutAuthentication(), gcs.WithJSONReads())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return fire, store.Bucket("linkreel")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	d, _ := serve(t, t.TempDir(), "--admin-addr", "127.0.0.1:0")
	for _, series := range []string{
		`localcloud_requests_total{outcome="failed",service="firestore"}`, `localcloud_requests_total{outcome="refused",service="storage"}`,
		`localcloud_commit_failures_total{reason="full"}`, `localcloud_storage_bytes_total{direction="in"}`, `localcloud_commit_seconds_count`,
	} {
		if n := metric(t, d, series); n != 0 {
			t.Errorf("at the start, %s is %v, want 0", series, n)
		}
	}
	for _, volume := range []string{"data", "objects"} {
		if n := metric(t, d, `localcloud_disk_free_bytes{volume="`+volume+`"}`); n <= 0 {
			t.Errorf("the free space on volume %s is %v, want more than 0", volume, n)
		}
	}
	fire, bucket := clients(t, d)
	if _, err := fire.Doc("k/a").Set(t.Context(), map[string]any{"n": 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := fire.Doc("k/b").Update(t.Context(), []gcfirestore.Update{{Path: "n", Value: 1}}); err == nil {
		t.Fatal("updating a missing document succeeded, want an error")
	}
	w := bucket.Object("o").NewWriter(t.Context())
	_, _ = w.Write(make([]byte, 100_000))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := bucket.Object("o").NewReader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, r)
	_, _ = bucket.Object("none").Attrs(t.Context())
	for series, least := range map[string]float64{
		`localcloud_requests_total{outcome="ok",service="firestore"}`: 1, `localcloud_requests_total{outcome="refused",service="firestore"}`: 1,
		`localcloud_requests_total{outcome="ok",service="storage"}`: 2, `localcloud_requests_total{outcome="refused",service="storage"}`: 1,
		`localcloud_storage_bytes_total{direction="in"}`: 100_000, `localcloud_storage_bytes_total{direction="out"}`: 100_000,
		`localcloud_commit_seconds_count`: 1,
	} {
		if n := metric(t, d, series); n < least {
			t.Errorf("the %s metric is %v, want at least %v", series, n, least)
		}
	}
}

// While commits fail, the responses from both health endpoints must include the reason and have
// status 200, because reads work and a restart would not help.
func TestHealthTellsThatCommitsFail(t *testing.T) {
	t.Parallel()
	fire, err := firestore.Open(firestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fire.Close() })
	client, err := fire.Client(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	var serving atomic.Bool
	serving.Store(true)
	h := health(&serving, fire, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }))
	answer := func(path string) string {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		return fmt.Sprint(rec.Code, " ", rec.Body)
	}
	end := fire.Faults().Add(firestore.Fault{DiskFull: true})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := client.Doc("k/a").Set(ctx, map[string]any{}); err == nil {
		t.Fatal("a commit on a full disk succeeded, want an error")
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if got := answer(path); !strings.HasPrefix(got, "200 ok") || !strings.Contains(got, "no space left on device") {
			t.Errorf("%s returned %q, want 200 with the reason", path, got)
		}
	}
	end()
	if _, err := client.Doc("k/a").Set(t.Context(), map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if got := answer("/readyz"); got != "200 ok\n" {
		t.Errorf("after the failure, /readyz returned %q, want 200 ok", got)
	}
}

func TestTheLogSaysHowManyIndexesAreThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "firestore.indexes.json")
	two := `{"indexes": [
		{"collectionGroup": "k", "queryScope": "COLLECTION", "fields": [{"fieldPath": "a", "order": "ASCENDING"}, {"fieldPath": "b", "order": "ASCENDING"}]},
		{"collectionGroup": "k", "queryScope": "COLLECTION", "fields": [{"fieldPath": "a", "order": "ASCENDING"}, {"fieldPath": "c", "order": "DESCENDING"}]}]}`
	if err := os.WriteFile(path, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the line is logged before run checks ctx
	for want, args := range map[string][]string{"indexes=2": {"--indexes", path}, "indexes=0": nil} {
		var out strings.Builder
		args = append(args, "--data-dir", t.TempDir(), "--firestore-addr", "127.0.0.1:0", "--storage-addr", "127.0.0.1:0", "--storage-api-addr", "localhost:0")
		if err := run(ctx, args, io.Discard, &out); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "msg=starting version=") || !strings.Contains(out.String(), want) {
			t.Errorf("the log is %q, want a startup line with %s", out.String(), want)
		}
	}
}

// The README's command must parse, and the addresses that the README exports must be the defaults.
func TestTheReadmeStartsTheProgram(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(strings.ReplaceAll(string(readme), "\\\n", " "), "cmd/localcloud@latest")
	command, _, _ = strings.Cut(command, "\n")
	o, err := parse(strings.Fields(command), io.Discard)
	if err != nil || !found || o.dataDir != ".localcloud" || len(o.indexes) != 1 || len(o.buckets) != 1 {
		t.Fatalf("the command %q gives the options %+v and the error %v", command, o, err)
	}
	for _, want := range []string{
		"export FIRESTORE_EMULATOR_HOST=" + o.firestoreAddr + "\n", "export STORAGE_EMULATOR_HOST=http://" + o.apiAddr + "\n",
		"export GOOGLE_APPLICATION_CREDENTIALS=" + o.dataDir + "/storage/service-account.json ",
	} {
		if !strings.Contains(string(readme), want) {
			t.Errorf("the README does not contain %q", want)
		}
	}
}
