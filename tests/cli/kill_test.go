package cli_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// The test kills the real program three times with SIGKILL while it is sending a part. Each time,
// the same command resumes at the offset that storage reports and does not send any part twice. At
// the end, the video must be ready.
func TestUploadKilledThreeTimesEndsReady(t *testing.T) {
	t.Parallel()
	s := realStack(t)
	dir := t.TempDir()
	const part, parts = 8 << 20, 8
	film := filepath.Join(dir, "film.mp4")
	padded(t, film, parts*part)
	faults := s.Storage.Faults()
	t.Cleanup(faults.Reset) // otherwise, stack shutdown would wait for the blocked calls
	sessions := func() int64 { c := faults.Calls(); return c["xml.session"] + c["objects.session"] }

	for kill := range 3 {
		// A query for the offset and two parts succeed. Storage does not respond to the third part.
		for _, call := range []string{"xml.session", "objects.session"} {
			faults.Inject(storage.Fault{Call: call, Times: 3})
			faults.Inject(storage.Fault{Call: call, Delay: time.Hour})
		}
		cmd := program(t.Context(), t, dir, s.BaseURL, s.Keys["business"], "videos", "upload", film)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for limit := time.After(2 * time.Minute); sessions() < 4; {
			select {
			case err := <-ended:
				t.Fatalf("run %d exited before it was killed: %v", kill+1, err)
			case <-limit:
				t.Fatalf("run %d made %d calls to the upload session, want at least 4", kill+1, sessions())
			case <-time.After(5 * time.Millisecond): // poll the other process
			}
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-ended
		faults.Reset()
	}

	cmd := program(t.Context(), t, dir, s.BaseURL, s.Keys["business"], "videos", "upload", "--json", film)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("the last run failed: %v: %s", err, errs.String())
	}
	var v client.Video
	if err := json.Unmarshal(out.Bytes(), &v); err != nil || v.Status != "ready" || v.Title != "film" {
		t.Errorf("the last run printed %[2]s (%[1]v), want the video film with the status ready", err, out.String())
	}
	if !strings.Contains(errs.String(), "resuming "+v.ID) {
		t.Errorf("the last run printed %q, want a message that the upload resumes", errs.String())
	}
	// Each killed run sent two parts, so one query and two parts remain. Storage may have kept part
	// of the data from an interrupted request, in which case the rest is split differently.
	if got := sessions(); got > 1+parts-3*2+1 {
		t.Errorf("the last run made %d calls to the upload session, want about %d", got, 1+parts-3*2)
	}
}

// padded creates a short video of exactly size bytes.
func padded(t *testing.T, path string, size int) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:d=2", "-pix_fmt", "yuv420p", path).CombinedOutput(); err != nil {
		t.Fatalf("cannot make a clip: %v: %s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	// An MP4 file may end with a box of free space.
	rest := size - int(info.Size())
	head := append(binary.BigEndian.AppendUint32(nil, uint32(rest)), "free"...)
	if _, err := f.Write(head); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(int64(size)); err != nil {
		t.Fatal(err)
	}
}
