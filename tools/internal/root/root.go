// Package root finds the repository from anywhere inside it.
package root

import (
	"errors"
	"os"
	"path/filepath"
)

// Dir returns the repository's folder.
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
			return "", errors.New("run inside the repository: no go.work above")
		}
		dir = filepath.Dir(dir)
	}
}
