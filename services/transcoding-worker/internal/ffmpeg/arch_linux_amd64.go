package ffmpeg

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// olderCalls are system calls that have been replaced by newer ones but still exist on
// amd64.
var olderCalls = []uint32{
	unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_MKDIR, unix.SYS_RMDIR,
	unix.SYS_GETDENTS, unix.SYS_PIPE, unix.SYS_DUP2, unix.SYS_POLL, unix.SYS_SELECT, unix.SYS_EPOLL_CREATE, unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD,
	unix.SYS_ALARM, unix.SYS_TIME, unix.SYS_GETRLIMIT, unix.SYS_GETPGRP, unix.SYS_ARCH_PRCTL,
}
