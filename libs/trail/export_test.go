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

func init() {
	really := readFile
	readFile = func(path string) ([]byte, error) {
		if until, ok := hangingReads.Load(path); ok {
			<-until.(chan struct{})
		}
		return really(path)
	}
}

// hangingReads maps a file to a channel that must be closed before the file can be read.
var hangingReads sync.Map

// HangRead makes reads of a file wait until the channel is closed.
func HangRead(path string, until chan struct{}) { hangingReads.Store(path, until) }

// badSyncs maps a folder to a function that reports whether a sync of the folder must fail.
var badSyncs sync.Map

// FailSync makes syncing a folder fail while fails returns true.
func FailSync(dir string, fails func() bool) { badSyncs.Store(dir, fails) }

// Settle waits until the log is neither writing nor removing anything.
func (l *Log) Settle() { l.running.Wait() }

// WaitingSince returns the gauge's value, which all logs share.
func WaitingSince() float64 { return testutil.ToFloat64(waitingSince) }
