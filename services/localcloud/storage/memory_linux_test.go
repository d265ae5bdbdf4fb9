package storage_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/procstat"
)

func TestMemoryDoesNotGrowWithTheSizeOfAnUpload(t *testing.T) {
	size := int64(128 << 20)
	if v := os.Getenv("LOCALCLOUD_UPLOAD_BYTES"); v != "" { // the full test sets 2147483648
		size, _ = strconv.ParseInt(v, 10, 64)
	}
	p := startProcess(t, t.TempDir())
	if a, err := tryCall(t.Context(), "POST", p.API+"/upload/storage/v1/b/b-1/o?uploadType=media&name=warm", strings.NewReader("x")); err != nil || a.status != 200 {
		t.Fatalf("the first upload returned %+v, %v; want 200", a, err)
	}
	before, err := procstat.Resident(p.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	peak := before
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			now, _ := procstat.Resident(p.cmd.Process.Pid) // if the process has exited, the upload fails
			peak = max(peak, now)
			time.Sleep(5 * time.Millisecond)
		}
	})
	begin := time.Now()
	a, err := tryCall(t.Context(), "POST", p.API+"/upload/storage/v1/b/b-1/o?uploadType=media&name=big", &zeros{size})
	took := time.Since(begin)
	cancel()
	wg.Wait()
	if err != nil || a.status != 200 || !strings.Contains(a.body, fmt.Sprintf(`"size":"%d"`, size)) {
		t.Fatalf("the upload returned %d, want 200 with its size: %s, %v", a.status, a.body, err)
	}
	t.Logf("uploaded %d MiB in %v; memory grew by %.1f MiB", size>>20, took.Round(time.Millisecond), float64(peak-before)/(1<<20))
	if peak-before > 64<<20 {
		t.Errorf("memory grew by %d MiB, want less than 64", (peak-before)>>20)
	}
}
