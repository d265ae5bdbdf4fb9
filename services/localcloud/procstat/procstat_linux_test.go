package procstat_test

import (
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/procstat"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// This is a single test because parallel tests would distort its measurements.
func TestThisProcess(t *testing.T) {
	const size = 64 << 20
	self := os.Getpid()
	resident := func() int64 { t.Helper(); n, err := procstat.Resident(self); check(t, err); return n }
	peak := func() int64 { t.Helper(); n, err := procstat.Peak(self); check(t, err); return n }

	before := resident()
	block := make([]byte, size)
	for i := range 5 * size { // takes a few tenths of a second
		block[i%size]++
	}
	used, err := procstat.CPU(self, self)
	check(t, err)
	var u syscall.Rusage
	check(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	kernel := time.Duration(u.Utime.Nano() + u.Stime.Nano())
	if used /= 2; used < kernel-100*time.Millisecond || used > kernel || used == 0 {
		t.Errorf("CPU = %v, want at most 100 ms below the kernel's %v", used, kernel)
	}

	holding := resident()
	clear(block) // keeps the block alive until here
	debug.FreeOSMemory()
	after := resident()
	if holding < before+size/2 || after > holding-size/2 || after < 1<<20 {
		t.Errorf("Resident = %d bytes before allocating %d bytes, %d with them and %d after freeing them", before, size, holding, after)
	}
	if n := peak(); n < before+size/2 {
		t.Errorf("Peak = %d, want a peak that includes the block of %d bytes", n, size)
	}
	check(t, procstat.ResetPeak(self))
	if n := peak(); n > holding-size/2 || n < 1<<20 {
		t.Errorf("Peak after a reset = %d, want well below %d", n, holding)
	}

	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe() // cat exits when the pipe is closed
	check(t, err)
	check(t, cmd.Start())
	if all := procstat.Descendants(self); !slices.Equal(all, []int{cmd.Process.Pid}) {
		t.Errorf("Descendants = %v, want %d", all, cmd.Process.Pid)
	}
	check(t, in.Close())
	check(t, cmd.Wait())
}
