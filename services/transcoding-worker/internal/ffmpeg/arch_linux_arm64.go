package ffmpeg

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// olderCalls are system calls that have been replaced by newer ones but still exist on some
// architectures. arm64 has none.
var olderCalls []uint32
