// Command linkreel runs the whole system on one machine (`linkreel up`), makes and restores
// backups (`linkreel backup` and `linkreel restore`), moves the data to Google's services
// (`linkreel move`), and installs the programs that Linkreel needs (`linkreel tools`). It is also
// the command-line client for the API.
package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/linkreel/linkreel/services/cli"
	"github.com/linkreel/linkreel/services/standalone"
	"github.com/linkreel/linkreel/services/standalone/internal/tools"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], cli.System(),
		cli.Command{Name: "up", Short: "run the whole system on this machine", Run: up},
		cli.Command{
			Name: "backup", Args: "[--encrypt-to RECIPIENT] [--from URL --token-file FILE] DIR",
			Short: "copy the data directory, or a running localcloud, into a new backup", Run: backup,
		},
		cli.Command{
			Name: "restore", Args: "[--verify] [--skip-damaged] [--without-keys] [--backup NAME] [--secrets FILE] [--audit FOLDER] [--identity FILE] [--localcloud FOLDER] DIR",
			Short: "restore a backup into an empty data directory, or only check it", Run: restore,
		},
		cli.Command{
			Name: "move", Args: "--to-project PROJECT --to-bucket BUCKET [--to-database DATABASE] | --abort",
			Short: "copy all data to Google's Firestore and Cloud Storage, and stop changes here", Run: move,
		},
		cli.Command{
			Name: "tools", Args: "NAME…",
			Short: "install programs that Linkreel and its tests run: redis, ffmpeg, chromium and others", Run: install,
		})
	stop()
	os.Exit(code)
}

func up(ctx context.Context, args []string, env cli.Env) error {
	if len(args) > 0 {
		return cli.Usage("up takes no arguments; settings come from LINKREEL_* variables, see docs/development.md")
	}
	return standalone.Up(ctx, env.Out)
}

func backup(ctx context.Context, args []string, env cli.Env) error {
	o, err := backupOptions(args, env)
	if err != nil {
		return err
	}
	return standalone.Backup(ctx, env.Out, o)
}

func backupOptions(args []string, env cli.Env) (o standalone.BackupOptions, err error) {
	fs := flag.NewFlagSet("backup", flag.ContinueOnError)
	fs.StringVar(&o.Recipient, "encrypt-to", "", "age recipient (age1…); only its identity can read the backup")
	fs.StringVar(&o.From, "from", "", "backup address of a running localcloud, its --backup-addr (default: the data directory)")
	fs.StringVar(&o.TokenFile, "token-file", "", "file with the token for --from")
	o.Dir, err = folder(fs, args, env)
	return o, err
}

func restore(ctx context.Context, args []string, env cli.Env) error {
	o, err := restoreOptions(args, env)
	if err != nil {
		return err
	}
	return standalone.Restore(ctx, env.Out, o)
}

func restoreOptions(args []string, env cli.Env) (o standalone.RestoreOptions, err error) {
	fs := flag.NewFlagSet("restore", flag.ContinueOnError)
	fs.BoolVar(&o.Verify, "verify", false, "check the backup and its keys without restoring anything")
	fs.StringVar(&o.Name, "backup", "", "name of the backup, a folder in DIR (default: the newest)")
	fs.StringVar(&o.Secrets, "secrets", "", "a copy of the data directory's secrets.json")
	fs.StringVar(&o.Audit, "audit", "", "folder with the revocation trail, audit in the old data directory (default: LINKREEL_AUDIT_DIR)")
	fs.StringVar(&o.Localcloud, "localcloud", "", "data directory of a stopped localcloud, to restore into; keys come from the settings of events and links")
	fs.StringVar(&o.ObjectsDir, "objects-dir", "", "the --objects-dir of that localcloud")
	fs.BoolVar(&o.SkipDamaged, "skip-damaged", false, "leave out objects whose bytes in the backup are damaged, and name them")
	fs.BoolVar(&o.WithoutKeys, "without-keys", false, "restore even if a key that sealed values is lost, and name the affected records")
	fs.StringVar(&o.Identity, "identity", "", "file with the age identity of an encrypted backup")
	o.Dir, err = folder(fs, args, env)
	return o, err
}

func move(ctx context.Context, args []string, env cli.Env) error {
	var o standalone.MoveOptions
	fs := flag.NewFlagSet("move", flag.ContinueOnError)
	fs.StringVar(&o.Project, "to-project", "", "Google Cloud project")
	fs.StringVar(&o.Database, "to-database", "(default)", "Firestore database in the project; it must be empty")
	fs.StringVar(&o.Bucket, "to-bucket", "", "Cloud Storage bucket; it must be empty")
	fs.BoolVar(&o.Abort, "abort", false, "let the data directory accept changes again")
	words, err := parse(fs, args, env)
	switch {
	case err != nil:
		return err
	case len(words) > 0:
		return cli.Usage("move takes flags only; see linkreel move --help")
	case o.Abort == (o.Project != "" || o.Bucket != ""), !o.Abort && (o.Project == "" || o.Bucket == ""):
		return cli.Usage("move takes --to-project and --to-bucket, or --abort")
	}
	return standalone.Move(ctx, env.Out, o)
}

// folder parses flags before and after the one argument, the backup folder.
func folder(fs *flag.FlagSet, args []string, env cli.Env) (string, error) {
	words, err := parse(fs, args, env)
	if err != nil {
		return "", err
	}
	if len(words) != 1 {
		return "", cli.Usage("%s takes one DIR, the backup folder", fs.Name())
	}
	return words[0], nil
}

// parse parses flags before, between and after the arguments and returns the arguments.
func parse(fs *flag.FlagSet, args []string, env cli.Env) (words []string, err error) {
	fs.SetOutput(io.Discard)
	for {
		err := fs.Parse(args)
		if errors.Is(err, flag.ErrHelp) {
			fs.SetOutput(env.Out)
			fs.Usage()
			return nil, err
		}
		if err != nil {
			return nil, cli.Usage("%v; see linkreel %s --help", err, fs.Name())
		}
		if fs.NArg() == 0 {
			return words, nil
		}
		words, args = append(words, fs.Arg(0)), fs.Args()[1:]
	}
}

func install(ctx context.Context, args []string, env cli.Env) error {
	if len(args) == 0 {
		return cli.Usage("tools needs at least one NAME: %s", strings.Join(slices.Sorted(maps.Keys(tools.Known)), ", "))
	}
	return tools.Ensure(ctx, env.Out, args...)
}
