package redisproc

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the parent dies. It also shields the child
// from a terminal's Ctrl-C, so the parent can shut it down cleanly.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
