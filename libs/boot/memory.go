package boot

import (
	"errors"
	"log/slog"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// heapShare is how much of a container's memory Go may use. Stacks and the heap
// are within it; what the kernel keeps for the process's connections and its
// files is not.
const heapShare = 0.9

// boundMemory tells the garbage collector what the container may use. It lets the
// heap double before it collects, so a process whose memory is half used could be
// killed for garbage. GOMEMLIMIT in the environment goes before.
func boundMemory() {
	switch _, err := memlimit.Set(memlimit.WithRatio(heapShare)); {
	case errors.Is(err, memlimit.ErrCgroupsNotSupported): // no container
	case err != nil:
		slog.Warn("memory is not bounded by the container's limit", "error", err)
	}
}
