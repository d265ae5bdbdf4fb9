package main

import (
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// onProcessor confines this program and its child processes to one processor. Some of a running
// program's threads cannot be moved, so this program re-executes itself. The new program starts on
// the calling thread's processor.
func onProcessor(number string) error {
	const done = "BENCH_CONFINED"
	if os.Getenv(done) != "" {
		return nil
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(n)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	return syscall.Exec(exe, os.Args, append(os.Environ(), done+"=1"))
}
