package ffmpeg

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allowedCalls are the system calls that a transcoder needs, measured with strace for the media
// corpus, and closely related calls. All others return EPERM. If they killed the process instead,
// a harmless check by a library would make the video fail. Calls that affect another process, the
// network or the kernel are excluded. Calls that are safe only with certain arguments are in
// [filter].
//
// execve is allowed because the filter is installed before the tool is executed. A program
// that the tool executes inherits the whole jail.
var allowedCalls = append([]uint32{
	// files; Landlock restricts which files can be opened
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_PREADV, unix.SYS_PWRITEV,
	unix.SYS_PREADV2, unix.SYS_PWRITEV2, unix.SYS_LSEEK, unix.SYS_CLOSE, unix.SYS_CLOSE_RANGE, unix.SYS_FSTAT, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FSTATFS,
	unix.SYS_OPENAT, unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_GETCWD, unix.SYS_GETDENTS64, unix.SYS_FCNTL, unix.SYS_FLOCK,
	unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_PIPE2, unix.SYS_EVENTFD2, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FADVISE64, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_UMASK,
	// its own memory
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MINCORE, unix.SYS_MSYNC,
	unix.SYS_MLOCK, unix.SYS_MUNLOCK, unix.SYS_MEMBARRIER, unix.SYS_GET_MEMPOLICY, unix.SYS_SET_MEMPOLICY, unix.SYS_MBIND,
	// its own threads; clone, clone3 and tgkill are in filter
	unix.SYS_FUTEX, unix.SYS_SET_ROBUST_LIST, unix.SYS_GET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_SET_TID_ADDRESS, unix.SYS_SCHED_YIELD,
	unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETPARAM, unix.SYS_SCHED_GETSCHEDULER, unix.SYS_SCHED_GET_PRIORITY_MAX, unix.SYS_SCHED_GET_PRIORITY_MIN, unix.SYS_GETCPU,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_RT_SIGSUSPEND, unix.SYS_RT_SIGPENDING, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	// time and waiting
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_TIMES, unix.SYS_SETITIMER, unix.SYS_GETITIMER,
	unix.SYS_PPOLL, unix.SYS_PSELECT6, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT,
	// information about the process and the machine
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_GETPGID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	unix.SYS_UNAME, unix.SYS_SYSINFO, unix.SYS_GETRUSAGE, unix.SYS_GETRANDOM,
	unix.SYS_EXECVE, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}, olderCalls...)

const (
	refused = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	absent  = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)

	loadWord = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	jumpEq   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	jumpSet  = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
	jumpGE   = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
	answer   = unix.BPF_RET | unix.BPF_K

	// Offsets into struct seccomp_data. Arguments are 64 bits wide. On both architectures, the
	// lower 32 bits come first. Every argument checked here is an int.
	offsetNr   = 0
	offsetArch = 4
	offsetArg0 = 16
	offsetArg1 = 24
)

// filter returns the seccomp program for a process. It rejects all calls made for a different
// architecture, where the same numbers refer to different calls.
func filter(pid uint32) []unix.SockFilter {
	prog := []unix.SockFilter{
		{Code: loadWord, K: offsetArch},
		{Code: jumpEq, K: auditArch, Jt: 1},
		{Code: answer, K: refused},
		{Code: loadWord, K: offsetNr},
		{Code: jumpGE, K: 0x40000000, Jf: 1}, // x32 calls on amd64
		{Code: answer, K: refused},
	}
	// on adds the instructions for call nr. The last instruction must be a return.
	on := func(nr uint32, then ...unix.SockFilter) {
		prog = append(prog, unix.SockFilter{Code: jumpEq, K: nr, Jf: uint8(len(then))})
		prog = append(prog, then...)
	}
	// oneOf allows a call only if its argument is one of values.
	oneOf := func(nr, offset uint32, values ...uint32) {
		then := []unix.SockFilter{{Code: loadWord, K: offset}}
		for i, v := range values {
			then = append(then, unix.SockFilter{Code: jumpEq, K: v, Jt: uint8(len(values) - i)})
		}
		on(nr, append(then, unix.SockFilter{Code: answer, K: refused}, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})...)
	}
	// A process may start threads but not child processes. clone3 passes its flags in memory, which
	// a filter cannot read. Without clone3, libc uses clone.
	on(unix.SYS_CLONE3, unix.SockFilter{Code: answer, K: absent})
	on(unix.SYS_CLONE,
		unix.SockFilter{Code: loadWord, K: offsetArg0},
		unix.SockFilter{Code: jumpSet, K: unix.CLONE_THREAD, Jt: 1},
		unix.SockFilter{Code: answer, K: refused},
		unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	// A process may signal itself, which abort needs, but not other processes. All pods on a node
	// run as the same user, so the kernel would otherwise allow signals between them.
	oneOf(unix.SYS_TGKILL, offsetArg0, pid)
	// For the same reason, a process may change only its own limits.
	oneOf(unix.SYS_PRLIMIT64, offsetArg0, 0, pid)
	oneOf(unix.SYS_PRCTL, offsetArg0, unix.PR_SET_NAME, unix.PR_GET_NAME)
	// A process may check whether an output is a terminal. Other requests access devices.
	oneOf(unix.SYS_IOCTL, offsetArg1, unix.TCGETS, unix.TIOCGWINSZ)
	for _, nr := range allowedCalls {
		on(nr, unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	}
	return append(prog, unix.SockFilter{Code: answer, K: refused})
}

// confineCalls installs the filter on this thread. The filter remains in effect after exec.
func confineCalls() error {
	prog := filter(uint32(os.Getpid()))
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if _, _, errno := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&fprog))); errno != 0 { //nolint:gosec // the kernel takes the filter by address, and fprog outlives the call
		return errno
	}
	return nil
}
