package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/trail"
	"github.com/linkreel/linkreel/services/auth"
)

const restoreUsage = "usage: auth restore --since TIME [--audit gs://BUCKET or FOLDER]"

const sinceHelp = "Use the time that you restored the database to, in UTC, such as 2026-03-01T12:00:00Z"

// restore reapplies revocations and similar decisions that a restored database has lost. It
// prints each of them, and the later changes that are lost.
func restore(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("auth restore", flag.ContinueOnError)
	since := flags.String("since", "", "time of the restored records, such as 2026-03-01T12:00:00Z")
	audit := flags.String("audit", "", "gs://BUCKET or folder of the revocation trail (default: the one in the settings)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *since == "" {
		return errors.New(restoreUsage)
	}
	at, err := time.Parse(time.RFC3339, *since)
	if err != nil {
		return fmt.Errorf("--since: %q is not a time. "+sinceHelp, *since)
	}
	if at.After(time.Now()) {
		return fmt.Errorf("--since: %s is in the future according to this machine's clock. "+sinceHelp, *since)
	}
	cfg, err := env.ParseAsWithOptions[firestoredb.Config](env.Options{Prefix: "LINKREEL_"})
	if err != nil {
		return err
	}
	from, err := env.ParseAs[auth.Audit]()
	if err != nil {
		return err
	}
	if bucket, ok := strings.CutPrefix(*audit, "gs://"); ok {
		from.AuditDir, from.AuditBucket = "", strings.TrimSuffix(bucket, "/")
	}
	var notes trail.Store = trail.Folder(*audit) // not created: a mistyped path must not look like an empty trail
	if *audit == "" || strings.HasPrefix(*audit, "gs://") {
		var done func() error
		if notes, done, err = from.OpenToRead(ctx); err != nil {
			return err
		}
		defer func() { _ = done() }()
	}
	db, err := firestoredb.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return auth.Recover(ctx, auth.Recovery{DB: db, Trail: notes, Since: at, Tell: func(line string) { _, _ = fmt.Fprintln(out, line) }})
}
