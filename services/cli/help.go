package cli

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is set for a release with -ldflags "-X …/services/cli.version=1.2.3".
var version string

// Version returns the release's version. If it is not set, Version returns the module's version or,
// failing that, the revision from which the program was built.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}

func showVersion(w io.Writer, args []string) error {
	v := map[string]string{"version": Version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
	switch {
	case len(args) == 0:
		_, err := fmt.Fprintf(w, "linkreel %s (%s, %s)\n", v["version"], v["go"], v["platform"])
		return err
	case len(args) == 1 && args[0] == "--json":
		return json.NewEncoder(w).Encode(v)
	}
	return usagef("version takes --json only")
}

// others lists the commands that are not in the table.
var others = []command{
	{name: "completion", args: "bash|zsh|fish", short: "print the shell's completion script"},
	{name: "version", args: "[--json]", short: "print the version of this program"},
	{name: "help", args: "[COMMAND]", short: "explain a command"},
}

const (
	everyCommand = "Every command takes --json, --quiet, --base-url and --key; `linkreel COMMAND --help` shows the rest."
	exitCodes    = `Exit codes: 0 done, 1 failed, 2 wrong usage, 3 key missing or not allowed, 4 not found,
5 request refused, 6 some items failed, 7 temporarily unavailable, 8 video failed, 130 stopped.`
)

// rows returns the names, arguments and short descriptions of all commands, in order.
func (p program) rows() (rows [][3]string) {
	for _, c := range p.added {
		rows = append(rows, [3]string{c.Name, c.Args, c.Short})
	}
	for _, list := range [][]command{p.commands, others} {
		for _, c := range list {
			rows = append(rows, [3]string{c.name, c.args, c.short})
		}
	}
	return rows
}

// helpOn explains a command, a group of commands, or all commands.
func (p program) helpOn(w io.Writer, args []string) error {
	c, rest, ok := p.find(args)
	switch {
	case len(args) == 0:
		p.help(w, "")
	case ok && len(rest) == 0:
		fs, _ := new(app).prepare(c)
		describe(w, c, fs)
	case len(args) == 1 && p.has(args[0]):
		p.help(w, args[0])
	default:
		return p.unknown(args)
	}
	return nil
}

func (p program) help(w io.Writer, group string) {
	if group == "" {
		fmt.Fprint(w, "linkreel: short links and videos from the command line\n\n")
	}
	for _, r := range p.rows() {
		if group == "" || strings.Fields(r[0])[0] == group {
			fmt.Fprintf(w, "  linkreel %-44s %s\n", strings.TrimSpace(r[0]+" "+r[1]), r[2])
		}
	}
	fmt.Fprintf(w, "\n%s\n\n%s\n", everyCommand, exitCodes)
}

func describe(w io.Writer, c command, fs *flag.FlagSet) {
	fmt.Fprintf(w, "linkreel %s\n\n%s.\n\n", strings.TrimSpace(c.name+" [flags] "+c.args), c.short)
	fs.VisitAll(func(f *flag.Flag) {
		kind, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(w, "  --%-24s %s\n", strings.TrimSpace(f.Name+" "+kind), usage)
	})
}
