//go:build !linux

package firestore

import "os"

func openMemoryFile(string, int, os.FileMode) (*os.File, error) { return openTemporary() }
