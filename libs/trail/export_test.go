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

// badSyncs maps a folder to a function that reports whether syncing the folder must fail.
var badSyncs sync.Map

// FailSync makes syncing a folder fail while fails returns true.
func FailSync(dir string, fails func() bool) { badSyncs.Store(dir, fails) }

// Settle waits until the log is neither writing nor removing anything.
func (l *Log) Settle() { l.running.Wait() }

// WaitingSince returns the gauge's value, which all logs share.
func WaitingSince() float64 { return testutil.ToFloat64(waitingSince) }
