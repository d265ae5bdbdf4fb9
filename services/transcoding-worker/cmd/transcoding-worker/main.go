// Command transcoding-worker transcodes uploaded videos.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/boot"
	worker "github.com/linkreel/linkreel/services/transcoding-worker"
)

func main() {
	cfg, err := env.ParseAs[worker.Config]()
	if err != nil {
		fmt.Fprintln(os.Stderr, "transcoding-worker:", err)
		os.Exit(1)
	}
	boot.Main("transcoding-worker", cfg.Config, func(ctx context.Context) (*boot.Service, error) { return worker.New(ctx, cfg) })
}
