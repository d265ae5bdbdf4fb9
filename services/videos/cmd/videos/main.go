// Command videos runs the videos service.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/services/videos"
)

func main() {
	cfg, err := env.ParseAs[videos.Config]()
	if err != nil {
		fmt.Fprintln(os.Stderr, "videos:", err)
		os.Exit(1)
	}
	boot.Main("videos", cfg.Config.Config, func(ctx context.Context) (*boot.Service, error) { return videos.New(ctx, cfg) })
}
