// Command localcloud is a Firestore and a Cloud Storage on this machine, durable, in one process, for every Google
// client library in every language:
//
//	localcloud --data-dir .localcloud --indexes firestore.indexes.json --bucket media
//
// It prints where to reach them, and writes the same to localcloud.json in the data directory once everything
// answers; the file is gone while nothing does. Programs find the key that signs addresses at the file's keyFile.
//
// The storage address asks for signatures. Firestore and the storage API ask for the token of --token-file; without one
// they ask for nothing, and then all listen on loopback only, whatever --allow-remote says.
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
