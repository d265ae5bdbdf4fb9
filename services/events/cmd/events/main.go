// Command events runs the events service.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/services/events"
)

func main() {
	cfg, err := env.ParseAs[events.Config]()
	if err != nil {
		fmt.Fprintln(os.Stderr, "events:", err)
		os.Exit(1)
	}
	boot.Main("events", cfg.Config.Config, func(ctx context.Context) (*boot.Service, error) { return events.New(ctx, cfg) })
}
