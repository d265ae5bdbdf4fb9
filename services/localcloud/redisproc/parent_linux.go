package redisproc

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel end the child when the parent is gone, and
// keeps a terminal's Ctrl-C for the parent, which stops the child in order.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
}
