package ffmpeg

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsyscall "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// enterJail drops all access that a transcoder does not need, and then executes the tool. It sets
// resource limits and no_new_privs, blocks access to files outside the tool's folder (Landlock),
// and blocks all system calls that the tool does not need (seccomp). These steps do not need any
// privileges, so enterJail works in a restricted pod.
//
// enterJail does not set RLIMIT_NPROC because it counts all of a user's processes, and the pods on
// a node may run as the same user. The seccomp filter forbids child processes instead.
func enterJail(spec jailSpec) error {
	runtime.LockOSThread() // seccomp and no_new_privs apply to the thread that calls exec
	if err := os.Chdir(spec.Dir); err != nil {
		return err
	}
	for resource, limit := range map[int]uint64{
		unix.RLIMIT_CORE:   0,
		unix.RLIMIT_CPU:    spec.CPU,
		unix.RLIMIT_FSIZE:  spec.FileSize,
		unix.RLIMIT_NOFILE: 256,
		unix.RLIMIT_STACK:  threadStack,
	} {
		if err := setrlimit(resource, limit); err != nil {
			return err
		}
	}
	// BestEffort below silently drops the restrictions that an older kernel does not support,
	// which may be all of them. Check first whether the kernel has Landlock.
	if _, err := llsyscall.LandlockGetABIVersion(); err != nil && !spec.Reduced {
		return fmt.Errorf("landlock: %w", err)
	}
	rules := []landlock.Rule{
		landlock.RODirs(spec.ReadOnly...).IgnoreIfMissing(),
		landlock.ROFiles("/etc/ld.so.cache", "/dev/urandom", "/dev/random", "/proc/cpuinfo").IgnoreIfMissing(),
		landlock.RWFiles("/dev/null").IgnoreIfMissing(),
		landlock.RWDirs(spec.Dir),
	}
	if err := landlock.V5.BestEffort().Restrict(rules...); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	// The kernel accepts a seccomp filter from an unprivileged thread only with no_new_privs.
	// Restrict may already have set it, but does nothing without Landlock.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	argv := append([]string{spec.Tool}, spec.Args...)
	if err := confineCalls(); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	if spec.Test != "" {
		return selfTest(spec.Test)
	}
	// Limit the memory last because the Go runtime may reserve more than the tool's limit. The
	// address space limit is higher because it also counts libraries and address space that malloc
	// only reserves.
	if err := setrlimit(unix.RLIMIT_AS, spec.Memory+addressRoom); err != nil {
		return err
	}
	if err := setrlimit(unix.RLIMIT_DATA, spec.Memory); err != nil {
		return err
	}
	return syscall.Exec(spec.Tool, argv, spec.Env)
}

// selfTest tries each access that the jail must prevent. Its exit code is the result.
func selfTest(foreign string) error {
	code := 0
	if fd, err := unix.Open(foreign, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd)
		code |= testFiles
	}
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
		_ = unix.Close(fd)
		code |= testCalls
	}
	parent := uintptr(os.Getppid())
	for _, call := range [][4]uintptr{
		// Signal 0 and reading limits do not affect the parent. A jail that allows them would
		// also allow harmful calls.
		{unix.SYS_KILL, parent, 0},
		{unix.SYS_TGKILL, parent, parent, 0},
		{unix.SYS_PRLIMIT64, parent, unix.RLIMIT_CORE, 0},
		{unix.SYS_PIDFD_OPEN, parent, 0},
		{unix.SYS_UNSHARE, unix.CLONE_NEWUSER},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno == 0 {
			code |= testCalls
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0); errno != unix.ENOSYS {
		code |= testCalls
	}
	child, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno == 0 {
		if child == 0 { // a copy of this process without a working Go runtime; it can only exit
			_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		code |= testCalls
	}
	os.Exit(code)
	return nil
}

const (
	// threadStack is the stack size of a thread. ffmpeg has dozens of threads. The usual 8 MiB
	// per thread would count towards the memory limit without being used.
	threadStack = 1 << 20
	// addressRoom is the additional address space for libraries and for malloc's
	// reservations.
	addressRoom = 4 << 30
)

func setrlimit(resource int, limit uint64) error {
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return fmt.Errorf("rlimit %d: %w", resource, err)
	}
	return nil
}

// jailed wraps a tool's call: this program restarts itself as the jail, in its own process group,
// and the kernel kills that process when this one dies.
func jailed(spec jailSpec, encoded string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // run kills the whole process group when its context is done
	cmd.Args = []string{jailName, encoded}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// peakMemory returns the peak resident size of a child that has exited, in bytes.
func peakMemory(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss * 1024
	}
	return 0
}
