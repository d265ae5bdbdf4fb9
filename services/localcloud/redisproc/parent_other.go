//go:build !linux

package redisproc

import (
	"os/exec"
	"syscall"
)

// dieWithParent keeps a terminal's Ctrl-C from the child. If a child survives a killed parent, the
// next start on its folder stops it.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}
