package backup

import "os"

// WithWrite returns options whose files are written by write.
func (o Options) WithWrite(write func(*os.File, []byte) (int, error)) Options {
	o.write = write
	return o
}
