package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/auth"
)

// bootstrap creates an account and prints its key, which is never shown again.
func bootstrap(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("auth bootstrap", flag.ContinueOnError)
	name := flags.String("name", "", "name of the account")
	planName := flags.String("plan", "enterprise", "free, creator, business or enterprise")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if strings.TrimSpace(*name) == "" || flags.NArg() > 0 {
		return errors.New("usage: auth bootstrap --name <account name> [--plan <plan>]")
	}
	plan, err := identity.ParsePlan(*planName)
	if err != nil {
		return err
	}
	cfg, err := env.ParseAsWithOptions[firestoredb.Config](env.Options{Prefix: "LINKREEL_"})
	if err != nil {
		return err
	}
	db, err := firestoredb.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	id, key, err := auth.Bootstrap(ctx, db, *name, plan)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "account %s\nkey     %s\n", id, key.Secret())
	return err
}
