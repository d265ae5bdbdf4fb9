// Command tools installs programs that Linkreel runs: `go run ./cmd/tools redis ffmpeg`. It imports
// only the standard library, so that `make run` can start it while everything else is still
// compiling. `linkreel tools` does the same.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/linkreel/linkreel/services/standalone/internal/tools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := tools.Ensure(ctx, os.Stdout, os.Args[1:]...)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}
