package ffmpeg

import (
	"encoding/json"
	"fmt"
	"os"
)

// jailName is the argv[0] under which this program starts again as the jail
// around ffmpeg.
const jailName = "linkreel-jail"

// jailSpec is what the jail needs to know; it travels as one argument, since
// the child's environment is empty.
type jailSpec struct {
	Tool     string   // absolute path of the program to become
	Args     []string // its arguments, argv[0] excluded
	Dir      string   // the only folder it may write to and, beside system libraries, read from
	ReadOnly []string // system folders it may read
	CPU      uint64   // seconds
	Memory   uint64   // bytes of its own
	FileSize uint64   // bytes of any one file
}

// init turns the process into the jailed tool when it was started as one. It
// lives in init so that each binary with a worker in it, the standalone and
// test binaries too, can jail its children without a line in its main.
func init() {
	if len(os.Args) != 2 || os.Args[0] != jailName {
		return
	}
	var spec jailSpec
	err := json.Unmarshal([]byte(os.Args[1]), &spec)
	if err == nil {
		err = enterJail(spec)
	}
	fmt.Fprintln(os.Stderr, "jail:", err) // only reached when exec did not happen
	os.Exit(126)
}
