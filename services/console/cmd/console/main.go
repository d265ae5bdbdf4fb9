// Command console runs the console service.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/services/console"
)

func main() {
	cfg, err := env.ParseAs[console.Config]()
	if err != nil {
		fmt.Fprintln(os.Stderr, "console:", err)
		os.Exit(1)
	}
	boot.Main("console", cfg.Config, func(ctx context.Context) (*boot.Service, error) { return console.New(ctx, cfg) })
}
