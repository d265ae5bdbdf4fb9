package ffmpeg

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// enterJail gives up what a transcoder has no use for and becomes the tool:
// resource limits, no new privileges, files outside its folder (Landlock, where
// the kernel has it), and sockets, tracing, mounting and the like (seccomp).
// None of it needs a privilege, so it works in a restricted pod.
func enterJail(spec jailSpec) error {
	runtime.LockOSThread() // seccomp and no_new_privs belong to the thread that execs
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
	rules := []landlock.Rule{
		landlock.RODirs(spec.ReadOnly...).IgnoreIfMissing(),
		landlock.ROFiles("/etc/ld.so.cache", "/dev/urandom", "/dev/random", "/proc/cpuinfo").IgnoreIfMissing(),
		landlock.RWFiles("/dev/null").IgnoreIfMissing(),
		landlock.RWDirs(spec.Dir),
	}
	if err := landlock.V5.BestEffort().Restrict(rules...); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	argv := append([]string{spec.Tool}, spec.Args...)
	if err := denySyscalls(); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	// Memory goes last: the Go runtime itself may reserve more than the tool may
	// have. Address space is the looser bound, for what is not the tool's own.
	if err := setrlimit(unix.RLIMIT_AS, spec.Memory+addressRoom); err != nil {
		return err
	}
	if err := setrlimit(unix.RLIMIT_DATA, spec.Memory); err != nil {
		return err
	}
	return syscall.Exec(spec.Tool, argv, []string{})
}

const (
	// threadStack is the stack of a thread, of which ffmpeg has dozens; the usual
	// 8 MiB would count against its memory without being used.
	threadStack = 1 << 20
	// addressRoom is for libraries and for address space that malloc reserves.
	addressRoom = 4 << 30
)

func setrlimit(resource int, limit uint64) error {
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return fmt.Errorf("rlimit %d: %w", resource, err)
	}
	return nil
}

// denied are the system calls that answer EPERM inside the jail. Killing the
// process instead would turn a library's harmless probe into a failed video.
var denied = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_UNSHARE, unix.SYS_SETNS,
	unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_USERFAULTFD,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_KILL, unix.SYS_TKILL,
}

// denySyscalls installs the filter on this thread; exec carries it on. Calls of
// another architecture's table are refused outright.
func denySyscalls() error {
	const (
		load     = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jumpEq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		jumpGE   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret      = unix.BPF_RET | unix.BPF_K
		offsetNr = 0
		offArch  = 4
		refuse   = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	n := uint8(len(denied))
	prog := []unix.SockFilter{
		{Code: load, K: offArch},
		{Code: jumpEq, K: auditArch, Jt: 1},
		{Code: ret, K: refuse},
		{Code: load, K: offsetNr},
		{Code: jumpGE, K: 0x40000000, Jt: n + 1}, // the x32 numbers of amd64
	}
	for i, nr := range denied {
		prog = append(prog, unix.SockFilter{Code: jumpEq, K: nr, Jt: n - uint8(i)})
	}
	prog = append(prog,
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: ret, K: refuse})
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog))); errno != 0 { //nolint:gosec // the kernel takes the filter by address, and fprog outlives the call
		return errno
	}
	return nil
}

// jailed wraps a tool's call: this program starts again as the jail, in its own
// process group, and dies with us.
func jailed(spec jailSpec, encoded string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe") //nolint:noctx // run kills the whole process group when its context ends
	cmd.Args = []string{jailName, encoded}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// peakMemory is the largest resident size of an ended child in bytes.
func peakMemory(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return usage.Maxrss * 1024
	}
	return 0
}
