// Package tools makes sure that the programs that Linkreel runs are installed. It installs missing
// programs with the machine's package manager. If it cannot install them, its error says what to
// install.
package tools

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Tool describes a program and its names on different systems.
type Tool struct {
	Binaries []string // one of them is enough
	Apt      string   // Debian and Ubuntu package
	Brew     string   // Homebrew formula; "" if there is none
}

// Known maps each name that [Ensure] accepts to its tool.
var Known = map[string]Tool{
	"redis":    {Binaries: []string{"redis-server", "valkey-server"}, Apt: "redis-server", Brew: "redis"},
	"ffmpeg":   {Binaries: []string{"ffmpeg"}, Apt: "ffmpeg", Brew: "ffmpeg"},
	"chromium": {Binaries: []string{"chromium", "chromium-browser", "google-chrome", "Google Chrome"}, Apt: "chromium"},
	"gcc":      {Binaries: []string{"gcc", "cc", "clang"}, Apt: "gcc libc6-dev"},
	"curl":     {Binaries: []string{"curl"}, Apt: "curl", Brew: "curl"},
	"jq":       {Binaries: []string{"jq"}, Apt: "jq", Brew: "jq"},
	"node":     {Binaries: []string{"node", "nodejs"}, Apt: "nodejs", Brew: "node"},
	"openssl":  {Binaries: []string{"openssl"}, Apt: "openssl", Brew: "openssl"},
	"python3":  {Binaries: []string{"python3"}, Apt: "python3", Brew: "python3"},
	"pip":      {Binaries: []string{"/usr/bin/pip3"}, Apt: "python3-pip python3-setuptools python3-wheel"},
	"mypy":     {Binaries: []string{"mypy"}, Apt: "mypy", Brew: "mypy"},
	"promtool": {Binaries: []string{"promtool"}, Apt: "prometheus", Brew: "prometheus"},
	"kubectl":  {Binaries: []string{"kubectl", "/var/lib/linkreel-cluster/bin/kubectl"}, Apt: "kubernetes-client", Brew: "kubernetes-cli"},
	"nginx":    {Binaries: []string{"nginx", "/usr/sbin/nginx"}, Apt: "nginx-light", Brew: "nginx"},
	"ps":       {Binaries: []string{"ps"}, Apt: "procps"},
}

// Machine describes the machine on which [Machine.Ensure] installs tools.
type Machine struct {
	GOOS string
	Root bool
	Look func(bin string) bool
	Run  func(ctx context.Context, argv ...string) error
}

func here() Machine {
	return Machine{
		GOOS: runtime.GOOS,
		Root: os.Geteuid() == 0,
		Look: func(bin string) bool { _, err := exec.LookPath(bin); return err == nil },
		Run: func(ctx context.Context, argv ...string) error {
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			cmd.Stdin = os.Stdin // sudo may ask for a password
			var tail tail
			cmd.Stdout, cmd.Stderr = &tail, &tail
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, tail.String())
			}
			return nil
		},
	}
}

// Ensure installs the named tools that are missing. It returns nil if all of them are installed
// afterwards.
func Ensure(ctx context.Context, out io.Writer, names ...string) error {
	return here().Ensure(ctx, out, names...)
}

// Ensure does the same as the function [Ensure], but on machine m.
func (m Machine) Ensure(ctx context.Context, out io.Writer, names ...string) error {
	var missing []string
	for _, name := range names {
		tool, ok := Known[name]
		if !ok {
			return fmt.Errorf("no tool is called %q", name)
		}
		if !m.has(tool) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	if err := m.install(ctx, out, missing); err != nil {
		return err
	}
	for _, name := range missing {
		if !m.has(Known[name]) {
			return fmt.Errorf("%s was installed but none of %s is on the PATH", name, strings.Join(Known[name].Binaries, ", "))
		}
	}
	return nil
}

func (m Machine) has(t Tool) bool {
	for _, bin := range t.Binaries {
		if m.Look(bin) {
			return true
		}
	}
	return false
}

func (m Machine) install(ctx context.Context, out io.Writer, missing []string) error {
	packages := func(of func(Tool) string) []string {
		var list []string
		for _, name := range missing {
			list = append(list, strings.Fields(of(Known[name]))...)
		}
		return list
	}
	apt := packages(func(t Tool) string { return t.Apt })
	switch {
	case m.GOOS == "linux" && m.Look("apt-get") && (m.Root || m.Look("sudo")):
		var sudo []string
		if !m.Root {
			sudo = []string{"sudo"}
		}
		_, _ = fmt.Fprintf(out, "Installing %s (apt) …\n", strings.Join(apt, ", "))
		if err := m.Run(ctx, append(sudo, "apt-get", "update", "-q")...); err != nil {
			return err
		}
		return m.Run(ctx, append(append(sudo, "apt-get", "install", "-y", "-q", "--no-install-recommends"), apt...)...)
	case m.GOOS == "darwin" && m.Look("brew"):
		brew := packages(func(t Tool) string { return t.Brew })
		if len(brew) == len(missing) {
			_, _ = fmt.Fprintf(out, "Installing %s (brew) …\n", strings.Join(brew, ", "))
			return m.Run(ctx, append([]string{"brew", "install"}, brew...)...)
		}
	}
	return fmt.Errorf("please install %s (Debian packages: %s) and try again", strings.Join(missing, ", "), strings.Join(apt, " "))
}

// tail keeps the end of a program's output for use in an error.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - 4096; n > 0 {
		t.b = t.b[n:]
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.b) }
