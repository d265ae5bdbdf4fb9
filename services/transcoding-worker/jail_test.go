//go:build linux

package worker

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unsafe"

	"github.com/caarlos0/env/v11"
	"golang.org/x/sys/unix"

	"github.com/linkreel/linkreel/libs/boot"
)

// withoutLandlockEnv makes the test binary run as if the kernel had no Landlock.
const withoutLandlockEnv = "LINKREEL_TEST_WITHOUT_LANDLOCK"

func TestMain(m *testing.M) {
	if os.Getenv(withoutLandlockEnv) != "" {
		if err := forgetLandlock(); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// forgetLandlock makes Landlock's system calls fail with ENOSYS in every thread of this
// process and in its child processes.
func forgetLandlock() error {
	const loadWord, jumpEq, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	prog := []unix.SockFilter{
		{Code: loadWord, K: 0}, // system call number
		{Code: jumpEq, K: unix.SYS_LANDLOCK_CREATE_RULESET, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{Code: answer, K: unix.SECCOMP_RET_ALLOW},
	}
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const modeFilter, everyThread = 1, 1
	if _, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, modeFilter, everyThread, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		return errno
	}
	return nil
}

// make creates a worker. Its stores do not exist, but New does not connect to them.
func make(t *testing.T, jail string, told func(error)) error {
	t.Helper()
	var cfg Config
	if err := env.ParseWithOptions(&cfg, env.Options{Environment: map[string]string{
		"LINKREEL_FIRESTORE_PROJECT": "test", "LINKREEL_FIRESTORE_ENDPOINT": "127.0.0.1:1",
		"LINKREEL_STORAGE_BUCKET": "media", "LINKREEL_STORAGE_ENDPOINT": "http://127.0.0.1:1", "LINKREEL_STORAGE_PUBLIC_URL": "http://127.0.0.1:1",
		"LINKREEL_REDIS_URL": "127.0.0.1:1", "LINKREEL_SCRATCH_DIR": t.TempDir(), "LINKREEL_JAIL": jail,
	}}); err != nil {
		t.Fatal(err)
	}
	cfg.ReducedJail = told
	svc, err := New(t.Context(), cfg)
	if err == nil {
		t.Cleanup(func() { _ = boot.CloseAll(context.Background(), svc) })
	}
	return err
}

func TestAnUnknownJailIsRefused(t *testing.T) {
	t.Parallel()
	if err := make(t, "none", nil); err == nil || !strings.Contains(err.Error(), "LINKREEL_JAIL") {
		t.Errorf("New = %v, want an error that names LINKREEL_JAIL", err)
	}
}

func TestWithoutLandlockTheWorkerRefusesToStart(t *testing.T) {
	t.Parallel()
	if os.Getenv(withoutLandlockEnv) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), withoutLandlockEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("the test process without Landlock failed with %v:\n%s", err, out)
		}
		return
	}
	if err := make(t, "full", nil); err == nil || !strings.Contains(err.Error(), "LINKREEL_JAIL=reduced") {
		t.Errorf("New = %v, want an error that suggests LINKREEL_JAIL=reduced", err)
	}
	if err := make(t, "reduced", nil); err != nil {
		t.Errorf("New with a reduced jail = %v, want nil", err)
	}
	var reason error
	if err := make(t, "full", func(err error) { reason = err }); err != nil || reason == nil {
		t.Errorf("New with ReducedJail = %v and reason %v, want no error and a reason", err, reason)
	}
}
