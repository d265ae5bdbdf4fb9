// Command linkreel runs the whole system on one machine (`linkreel up`), installs the
// programs it needs (`linkreel tools`), and is the command line of the API.
package main

import (
	"context"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/linkreel/linkreel/services/cli"
	"github.com/linkreel/linkreel/services/standalone"
	"github.com/linkreel/linkreel/services/standalone/internal/tools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.System(),
		cli.Command{Name: "up", Short: "run the whole system on this machine", Run: up},
		cli.Command{
			Name: "tools", Args: "NAME…",
			Short: "install programs that Linkreel and its tests run: redis, ffmpeg, chromium and others", Run: install,
		})
	stop()
	os.Exit(code)
}

func up(ctx context.Context, args []string, env cli.Env) error {
	if len(args) > 0 {
		return cli.Usage("up takes no arguments; settings come from LINKREEL_* variables, see docs/development.md")
	}
	return standalone.Up(ctx, env.Out)
}

func install(ctx context.Context, args []string, env cli.Env) error {
	if len(args) == 0 {
		return cli.Usage("tools needs at least one NAME: %s", strings.Join(slices.Sorted(maps.Keys(tools.Known)), ", "))
	}
	return tools.Ensure(ctx, env.Out, args...)
}
