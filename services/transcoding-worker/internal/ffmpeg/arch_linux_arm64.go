package ffmpeg

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// olderCalls are system calls that only some architectures have besides their newer
// forms.
var olderCalls []uint32
