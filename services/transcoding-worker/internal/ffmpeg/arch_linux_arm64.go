package ffmpeg

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// olderCalls are calls that only some architectures have beside their newer forms.
var olderCalls []uint32
