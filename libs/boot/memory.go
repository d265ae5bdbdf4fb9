package boot

import (
	"errors"
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// heapShare is Go's share of the container's memory. The rest is for memory that Go
// does not count: the program's own pages, the kernel's buffers for connections, files.
const heapShare = 0.9

// boundMemory sets Go's soft memory limit from the container's limit. Otherwise the heap
// may double before Go collects it, and the kernel would kill a process whose live memory
// is only half of the container's limit. An explicit GOMEMLIMIT takes precedence.
func boundMemory() {
	switch _, err := memlimit.Set(memlimit.WithRatio(heapShare)); {
	case errors.Is(err, memlimit.ErrCgroupsNotSupported): // no container
	case err != nil:
		slog.Warn("memory is not bounded by the container's limit", "error", err)
	}
}
