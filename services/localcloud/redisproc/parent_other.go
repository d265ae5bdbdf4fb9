//go:build !linux

package redisproc

import (
	"os/exec"
	"syscall"
)

// dieWithParent keeps a terminal's Ctrl-C from the child. A child that outlives a killed
// parent is stopped by the next start on its folder.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
