// Command auth runs the auth service. `auth bootstrap` creates the first account. `auth
// restore` reapplies revocations and similar decisions to a restored database.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/services/auth"
)

func main() {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "bootstrap":
			exit(bootstrap(context.Background(), os.Args[2:], os.Stdout))
			return
		case "restore":
			exit(restore(context.Background(), os.Args[2:], os.Stdout))
			return
		}
	}
	cfg, err := env.ParseAs[auth.Config]()
	exit(err)
	boot.Main("auth", cfg.Config.Config, func(ctx context.Context) (*boot.Service, error) { return auth.New(ctx, cfg) })
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "auth:", err)
		os.Exit(1)
	}
}
