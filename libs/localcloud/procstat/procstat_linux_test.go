package procstat_test

import (
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"

	"github.com/linkreel/linkreel/libs/localcloud/procstat"
)

// One test, since anything beside it would show in its figures.
func TestThisProcess(t *testing.T) {
	const size, most = 64 << 20, 1 << 40
	self := os.Getpid()
	got := func(n int64, err error) func(least, most int64) int64 {
		return func(least, most int64) int64 {
			t.Helper()
			if err != nil || n < least || n > most {
				t.Fatalf("%d (%v), want %d to %d", n, err, least, most)
			}
			return n
		}
	}
	before := got(procstat.Resident(self))(1<<20, most)
	block := make([]byte, size)
	for i := range 5 * size {
		block[i%size]++
	}
	used, err := procstat.CPU(self, self)
	var u syscall.Rusage
	kernel := got(0, syscall.Getrusage(syscall.RUSAGE_SELF, &u))(0, 0) + u.Utime.Nano() + u.Stime.Nano()
	got(int64(used)/2, err)(max(kernel-100e6, 50e6), kernel)
	holding := got(procstat.Resident(self))(before+size/2, most)
	clear(block) // which keeps it until here
	debug.FreeOSMemory()
	got(procstat.Resident(self))(1<<20, holding-size/2)
	got(procstat.Peak(self))(before+size/2, most)
	got(0, procstat.ResetPeak(self))(0, 0)
	got(procstat.Peak(self))(1<<20, holding-size/2)

	cmd := exec.CommandContext(t.Context(), "cat")
	in, _ := cmd.StdinPipe() // cat ends with it
	got(0, cmd.Start())(0, 0)
	if all := procstat.Descendants(self); !slices.Equal(all, []int{cmd.Process.Pid}) {
		t.Errorf("descendants %v, want %d", all, cmd.Process.Pid)
	}
	got(0, in.Close())(0, 0)
	got(0, cmd.Wait())(0, 0)
}
