//go:build !linux

package redisproc

import (
	"os/exec"
	"syscall"
)

// dieWithParent shields the child from a terminal's Ctrl-C. A child that survives its killed parent
// is stopped by the next start on the same folder.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
