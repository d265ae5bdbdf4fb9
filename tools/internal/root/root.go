// Package root finds the repository's root directory.
package root

import (
	"errors"
	"os"
	"path/filepath"
)

// Dir returns the repository's root directory.
func Dir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.work in this directory or above; run the command inside the repository")
		}
		dir = filepath.Dir(dir)
	}
}
