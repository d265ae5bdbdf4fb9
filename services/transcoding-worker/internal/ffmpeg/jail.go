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

// jailName is the argv[0] under which this program starts itself again as the jail
// around ffmpeg.
const jailName = "linkreel-jail"

// jailSpec configures the jail. It is passed as one argument, since the child's
// environment is empty.
type jailSpec struct {
	Tool     string   // absolute path of the program to execute
	Args     []string // its arguments, argv[0] excluded
	Env      []string // its environment
	Dir      string   // the only folder it may write to and, besides system libraries, read from
	ReadOnly []string // system folders it may read
	CPU      uint64   // seconds
	Memory   uint64   // bytes of private memory
	FileSize uint64   // bytes per file
	Reduced  bool     // run without Landlock where the kernel lacks it
	Test     string   // a file outside the jail; if set, try to read it instead of executing the tool
}

// ErrJail means that the jail does not protect this system.
var ErrJail = errors.New("ffmpeg: the jail does not protect this system")

// Exit codes of a self-test, as a bit set.
const (
	testFiles = 1 << iota // a foreign file could be read
	testCalls             // a socket could be opened, or another process signalled
)

// SelfTest starts a jail in dir, which must be empty, and tries to read a file outside
// of it, to open a socket and to signal the parent. It returns nil if all of that fails
// and both tools start in the jail. It returns ErrJail if the kernel lacks a feature
// that the jail needs; the tools then refuse every call unless t.Reduced is set. It
// returns ErrStart if the image lacks a library that they need.
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
	// Set Reduced, so that the test reports which access is possible instead of failing to
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
		return fmt.Errorf("%w: its programs can open sockets or signal other processes (seccomp)", ErrJail)
	default:
		return fmt.Errorf("%w: its programs can read foreign files (Landlock)", ErrJail)
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

// init turns the process into the jailed tool if it was started as one. It is in init
// so that every binary that contains a worker, including the standalone and test
// binaries, can jail its children without any code in its main.
func init() {
	if len(os.Args) != 2 || os.Args[0] != jailName {
		return
	}
	var spec jailSpec
	err := json.Unmarshal([]byte(os.Args[1]), &spec)
	if err == nil {
		err = enterJail(spec)
	}
	fmt.Fprintln(os.Stderr, "jail:", err) // reached only if exec failed
	os.Exit(exitJail)
}
