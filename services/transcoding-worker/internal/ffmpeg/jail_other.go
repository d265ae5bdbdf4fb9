//go:build !linux

package ffmpeg

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

func enterJail(jailSpec) error { return errors.New("no jail on this system") }

// jailed starts the tool without a jail. Systems other than Linux are supported only for
// development. On those systems, the demuxer and protocol allow-lists are the only protection.
func jailed(spec jailSpec, _ string) *exec.Cmd {
	if spec.Test != "" {
		// Without a jail, a tool can read files outside its folder.
		return exec.Command("sh", "-c", "exit "+strconv.Itoa(testFiles)) //nolint:noctx // it ends at once
	}
	cmd := exec.Command(spec.Tool, spec.Args...) //nolint:noctx // run kills the whole process group when its context is done
	cmd.Dir = spec.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func peakMemory(*os.ProcessState) int64 { return 0 }
