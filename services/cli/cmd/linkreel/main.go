// Command linkreel is the command-line client for the API. It does not include the servers. The
// program in services/standalone has the same commands, and its `linkreel up` runs the servers.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/linkreel/linkreel/services/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.System(), cli.Command{
		Name: "up", Short: "print how to run the whole system; this build does not include the servers",
		Run: func(context.Context, []string, cli.Env) error {
			return errors.New("this build does not include the servers; run `make run` in a checkout of Linkreel, or build ./services/standalone/cmd/linkreel")
		},
	})
	stop()
	os.Exit(code)
}
