package backup

import (
	"os"
	"time"
)

// WithWrite returns a copy of the options that writes files with write.
func (o Options) WithWrite(write func(*os.File, []byte) (int, error)) Options {
	o.write = write
	return o
}

// WithSilence returns a copy of the options with a limit on how long the source may be silent.
func (o Options) WithSilence(limit time.Duration) Options {
	o.silent = limit
	return o
}

// WithSync returns a copy of the options that makes the names in a folder durable with sync.
func (o Options) WithSync(sync func(dir string) error) Options {
	o.sync = sync
	return o
}

// SetMaxIndex sets the maximum size of an index and returns a function that restores it.
func SetMaxIndex(n int64) (reset func()) {
	old := maxIndex
	maxIndex = n
	return func() { maxIndex = old }
}
