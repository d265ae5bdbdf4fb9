package ffmpeg

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// jailName is the argv[0] that this program uses when it restarts itself as the jail around ffmpeg.
const jailName = "linkreel-jail"

// jailSpec configures the jail. It is passed as one argument because the child's environment is
// empty.
type jailSpec struct {
	Tool     string   // absolute path of the program to execute
	Args     []string // its arguments without argv[0]
	Env      []string // its environment
	Dir      string   // the only folder that it may write to; ReadOnly lists the others that it may read
	ReadOnly []string // system folders that it may read
	CPU      uint64   // seconds
	Memory   uint64   // bytes of private memory
	FileSize uint64   // bytes per file
	Reduced  bool     // run without Landlock if the kernel lacks it
	Test     string   // a file outside the jail; if set, try to read it instead of executing the tool
}

// ErrJail means that the jail cannot protect this system.
var ErrJail = errors.New("ffmpeg: the jail cannot protect this system")

// Exit codes of a self-test. The bits can be combined.
const (
	testFiles = 1 << iota // a file outside the jail could be read
	testCalls             // a socket could be opened, or another process could be signalled
)

// SelfTest starts a jail in dir, which must be empty, and tries to read a file outside dir, open a
// socket and signal the parent process. It returns nil if all three attempts fail and both tools
// start in the jail. It returns ErrJail if the kernel lacks a feature that the jail needs. In that
// case, every call fails unless t.Reduced is set. SelfTest returns ErrStart if the image lacks a
// library that the tools need.
func (t *Tools) SelfTest(ctx context.Context, dir string) error {
	foreign := filepath.Join(dir, "foreign")
	inside := filepath.Join(dir, "inside")
	if err := os.WriteFile(foreign, []byte("not for the jail"), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(inside); _ = os.Remove(foreign) }()
	if err := os.MkdirAll(inside, 0o700); err != nil {
		return err
	}
	// Set Reduced, so the self-test reports which access is possible instead of failing to
	// start the jail.
	test := *t
	test.Reduced, test.Used = true, nil
	if err := test.version(ctx, inside); err != nil {
		return err
	}
	_, err := test.start(ctx, t.FFmpeg, Call{Dir: inside, CPU: 10 * time.Second, Wall: 30 * time.Second}, foreign)
	var exit *ExitError
	if !errors.As(err, &exit) || exit.Code > testFiles|testCalls {
		return err
	}
	switch {
	case exit.Code&testCalls != 0:
		return fmt.Errorf("%w: jailed programs can open sockets or signal other processes (seccomp)", ErrJail)
	default:
		return fmt.Errorf("%w: jailed programs can read files outside their folder (Landlock)", ErrJail)
	}
}

// version makes both tools print their version.
func (t *Tools) version(ctx context.Context, dir string) error {
	call := Call{Dir: dir, Args: []string{"-version"}, CPU: 10 * time.Second, Wall: 30 * time.Second}
	if _, err := t.Transcode(ctx, call); err != nil {
		return err
	}
	_, err := t.Inspect(ctx, call)
	return err
}

// init turns the process into the jailed tool if it was started as a jail. Because this happens
// in init, every binary that contains a worker, including standalone and test binaries, can jail
// its children without any code in its main function.
func init() {
	if len(os.Args) != 2 || os.Args[0] != jailName {
		return
	}
	var spec jailSpec
	err := json.Unmarshal([]byte(os.Args[1]), &spec)
	if err == nil {
		err = enterJail(spec)
	}
	fmt.Fprintln(os.Stderr, "jail:", err) // only reached if exec failed
	os.Exit(exitJail)
}
