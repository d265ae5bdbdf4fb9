package boot

import (
	"errors"
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// heapShare is Go's share of the container's memory. The rest is for memory that Go's limit does
// not cover, such as the program's code, the kernel's connection buffers and the page cache.
const heapShare = 0.9

// boundMemory sets Go's soft memory limit from the container's limit. Without it, the heap may
// double before Go collects garbage, so the kernel could kill a process whose live data is only
// half of the container's limit. An explicit GOMEMLIMIT takes precedence.
func boundMemory() {
	switch _, err := memlimit.Set(memlimit.WithRatio(heapShare)); {
	case errors.Is(err, memlimit.ErrCgroupsNotSupported): // no container
	case err != nil:
		slog.Warn("cannot set the memory limit from the container; the heap is not bounded", "error", err)
	}
}
