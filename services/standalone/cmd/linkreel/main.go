// Command linkreel runs the whole system on one machine (`linkreel up`), sees to
// the programs it needs (`linkreel tools`), and is the command line of the API.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/linkreel/linkreel/services/standalone"
	"github.com/linkreel/linkreel/services/standalone/internal/cli"
	"github.com/linkreel/linkreel/services/standalone/internal/tools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if args := os.Args[1:]; len(args) > 0 && cli.Has(args[0]) {
		os.Exit(cli.Run(ctx, args, cli.System()))
	}
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "linkreel:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	command := ""
	if len(args) > 0 {
		command = args[0]
	}
	switch command {
	case "up":
		return standalone.Up(ctx, os.Stdout)
	case "tools":
		return tools.Ensure(ctx, os.Stdout, args[1:]...)
	}
	return fmt.Errorf("usage: linkreel up | tools NAME…")
}
