// Command links runs the links service.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/services/links"
)

func main() {
	cfg, err := env.ParseAs[links.Config]()
	if err != nil {
		fmt.Fprintln(os.Stderr, "links:", err)
		os.Exit(1)
	}
	boot.Main("links", cfg.Config.Config, func(ctx context.Context) (*boot.Service, error) { return links.New(ctx, cfg) })
}
