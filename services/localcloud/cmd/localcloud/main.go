// Command localcloud runs a durable Firestore and Cloud Storage on this machine, in one process,
// for Google's client libraries in any language:
//
//	localcloud --data-dir .localcloud --indexes firestore.indexes.json --bucket media
//
// When both servers are ready, it prints their addresses and writes them to localcloud.json in the
// data directory. The file exists only while both servers are ready. Its keyFile field contains the
// path of the key that signs URLs.
//
// The storage address accepts only signed requests. Firestore and the storage API require the token
// from --token-file. Without this flag, callers do not need a token, and all listeners use loopback
// only, even with --allow-remote.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "localcloud:", err)
		os.Exit(1)
	}
}
