package trail

import (
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func init() {
	readPause = time.Millisecond
	really := syncDir
	syncDir = func(path string) error {
		if fails, ok := badSyncs.Load(path); ok && fails.(func() bool)() {
			return syscall.EIO
		}
		return really(path)
	}
}

// badSyncs has, by folder, a function that reports whether to fail a sync of the folder.
var badSyncs sync.Map

// FailSync makes syncs of a folder fail while fails returns true.
func FailSync(dir string, fails func() bool) { badSyncs.Store(dir, fails) }

// Settle returns when the log neither writes nor removes anything.
func (l *Log) Settle() { l.running.Wait() }

// WaitingSince returns the value of the gauge, which all logs share.
func WaitingSince() float64 { return testutil.ToFloat64(waitingSince) }
