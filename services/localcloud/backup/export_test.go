package backup

import "os"

// WithWrite returns a copy of the options that writes files with write.
func (o Options) WithWrite(write func(*os.File, []byte) (int, error)) Options {
	o.write = write
	return o
}
