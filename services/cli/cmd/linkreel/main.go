// Command linkreel is the command line of the API, without servers. The program of
// services/standalone has the same commands and also `linkreel up`.
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
		Name: "up", Short: "print how to run the whole system; this program has no servers",
		Run: func(context.Context, []string, cli.Env) error {
			return errors.New("this program has no servers; run `make run` in a checkout of Linkreel, or build ./services/standalone/cmd/linkreel")
		},
	})
	stop()
	os.Exit(code)
}
