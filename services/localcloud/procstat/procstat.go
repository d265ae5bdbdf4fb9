// Package procstat reads the statistics of running processes from Linux's /proc, as described in
// proc(5). Tests and benchmarks use it to measure servers. It compiles on every platform, but only
// Heap works without /proc.
//
// Times have a resolution of 10 ms, the kernel's clock tick. Sizes are in bytes and include every
// resident page, even if other processes share it.
package procstat

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// CPU returns the user and system time that the processes have used so far, excluding their
// children.
func CPU(pids ...int) (total time.Duration, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// The second field is the program's name in parentheses. The name may itself contain spaces
		// and parentheses.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		var user, system time.Duration
		if _, err := fmt.Sscan(strings.Join(fields[11:13], " "), &user, &system); err != nil { // fields 14 and 15 in proc(5)
			return 0, fmt.Errorf("cannot parse the times of process %d: %w", pid, err)
		}
		total += (user + system) * 10 * time.Millisecond
	}
	return total, nil
}

// Resident returns the current resident memory of a process. It returns an error if the process has
// exited.
func Resident(pid int) (int64, error) { return memory(pid, "VmRSS:") }

// Peak returns the peak resident memory of a process since its start or the last [ResetPeak].
func Peak(pid int) (int64, error) { return memory(pid, "VmHWM:") }

// ResetPeak lowers the recorded peak of a process to its current resident memory.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // 5 resets the peak only
}

func memory(pid int, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	var kB int64
	_, rest, _ := strings.Cut(string(text), "\n"+field)
	if _, err := fmt.Sscan(rest, &kB); err != nil { // a zombie process has no such line
		return 0, fmt.Errorf("cannot parse %s of process %d: %w", field, pid, err)
	}
	return kB << 10, nil
}

// Descendants returns the running processes that any thread of pid has started, and their
// descendants. Processes that exit during the call may be missing.
func Descendants(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // cannot fail because the pattern is valid
	for _, list := range lists {
		text, _ := os.ReadFile(list) // empty if the thread has exited
		for _, f := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(append(all, child), Descendants(child)...)
			}
		}
	}
	return all
}

// Heap returns how much of this process's Go heap is in use after two collections. The second
// collection frees memory that only finalizers or pools held.
func Heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
