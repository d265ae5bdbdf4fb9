package firestore

import (
	"os"

	"golang.org/x/sys/unix"
)

func openMemoryFile(string, int, os.FileMode) (*os.File, error) {
	fd, err := unix.MemfdCreate("firestore", unix.MFD_CLOEXEC)
	if err != nil {
		return openTemporary()
	}
	return os.NewFile(uintptr(fd), "memory"), nil
}
