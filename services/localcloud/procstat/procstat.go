// Package procstat reads what Linux records about running processes, as described in
// proc(5). Tests and benchmarks use it to measure servers. It compiles on every system, but
// without Linux's /proc only Heap works.
//
// Times come in steps of 10 ms, the kernel's clock tick; sizes are in bytes and
// count every resident page, including those shared with other processes.
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

// CPU returns the processor time, user and system, that the processes have used so far,
// not including their children.
func CPU(pids ...int) (total time.Duration, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		// The second field, the program's name in brackets, may contain spaces and brackets.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		var user, system time.Duration
		if _, err := fmt.Sscan(strings.Join(fields[11:13], " "), &user, &system); err != nil { // 14 and 15 in proc(5)
			return 0, fmt.Errorf("times of process %d: %w", pid, err)
		}
		total += (user + system) * 10 * time.Millisecond
	}
	return total, nil
}

// Resident returns the memory that a process uses now. It returns an error for a process
// that has ended.
func Resident(pid int) (int64, error) { return memory(pid, "VmRSS:") }

// Peak returns the largest memory that a process has used since it started or since
// [ResetPeak].
func Peak(pid int) (int64, error) { return memory(pid, "VmHWM:") }

// ResetPeak lowers the recorded peak of a process to its present memory.
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // 5 resets only the peak
}

func memory(pid int, field string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	var kB int64
	_, rest, _ := strings.Cut(string(text), "\n"+field)
	if _, err := fmt.Sscan(rest, &kB); err != nil { // a zombie has no such line
		return 0, fmt.Errorf("%s of process %d: %w", field, pid, err)
	}
	return kB << 10, nil
}

// Descendants returns the processes that any thread of pid has started, and their own
// descendants. Processes that end meanwhile may be missing.
func Descendants(pid int) (all []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // the pattern is right
	for _, list := range lists {
		text, _ := os.ReadFile(list) // empty when the thread has ended
		for _, f := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				all = append(append(all, child), Descendants(child)...)
			}
		}
	}
	return all
}

// Heap returns the size of the part of this process's Go heap that is in use after two
// collections. The second one frees memory that only finalizers or pools held.
func Heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
