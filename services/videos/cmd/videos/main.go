// Command videos runs the videos service. The subcommand "preflight" checks that Google Cloud
// and Redis are set up for an installation.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/services/videos"
	"github.com/linkreel/linkreel/services/videos/internal/preflight"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "preflight" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		exitOn("preflight", preflight.Run(ctx, os.Args[2:]))
		return
	}
	cfg, err := env.ParseAs[videos.Config]()
	exitOn("videos", err)
	boot.Main("videos", cfg.Config.Config, func(ctx context.Context) (*boot.Service, error) { return videos.New(ctx, cfg) })
}

func exitOn(what string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, what+":", err)
		os.Exit(1)
	}
}
