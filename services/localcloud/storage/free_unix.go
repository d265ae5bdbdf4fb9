//go:build linux || darwin

package storage

import "golang.org/x/sys/unix"

// freeSpace returns the number of bytes that an unprivileged program may still write to dir's
// volume.
func freeSpace(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), nil //nolint:unconvert // the types differ between systems
}
