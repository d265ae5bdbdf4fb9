// Package cli is the command-line client for the API: `linkreel links create …` and the other commands.
// Standard output contains only results, so commands work in pipes. Messages for people are printed
// to standard error. With --json, each result is one JSON object per line.
//
// A long command can be stopped at any time, even by SIGKILL. Running the same command again
// resumes, without creating anything twice.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// These are the exit codes of every command.
const (
	ExitOK          = 0
	ExitFailed      = 1   // any other failure
	ExitUsage       = 2   // wrong usage
	ExitAuth        = 3   // no valid key, or the key lacks the permission (401, 403)
	ExitNotFound    = 4   // the record does not exist (404)
	ExitRefused     = 5   // the request was rejected and must be changed (400, 409, 412, 422)
	ExitPartly      = 6   // some of the items failed
	ExitUnavailable = 7   // unreachable, rate limited or temporarily down
	ExitVideoFailed = 8   // the video could not be prepared
	ExitInterrupted = 130 // stopped by a signal
)

// Env is the environment for a run. [System] returns the real one.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminal reports whether Err is a terminal.
	Terminal bool
	Getenv   func(string) string
	// ConfigDir contains the login, and StateDir contains unfinished uploads.
	ConfigDir, StateDir string
	Now                 func() time.Time
	Sleep               func(ctx context.Context, d time.Duration) error // if nil, pause uses the real clock
	// Open opens a URL in the user's browser. It is nil if there is no browser.
	Open func(ctx context.Context, address string) error
}

// pause waits for d, or until ctx is done.
func (e Env) pause(ctx context.Context, d time.Duration) error {
	if e.Sleep != nil {
		return e.Sleep(ctx, d)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// System returns the process's real environment.
func System() Env {
	e := Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now, Open: openBrowser}
	if info, err := os.Stderr.Stat(); err == nil {
		e.Terminal = info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	e.ConfigDir, _ = os.UserConfigDir() // commands that need it report that it is missing
	e.StateDir, _ = os.UserCacheDir()
	return e
}

// usageError reports that a command was used incorrectly.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, a ...any) error { return &usageError{fmt.Sprintf(format, a...)} }

// errStopped ends a command that runs until it receives a signal. It does not print a message: the
// exit code is enough.
var errStopped = errors.New("stopped")

// partly reports that some of several items failed.
type partly struct{ failed, of int }

func (p *partly) Error() string { return fmt.Sprintf("%d of %d failed", p.failed, p.of) }

// command is one entry in the table. setup adds flags and returns the function to run.
type command struct {
	name, args, short string
	setup             func(a *app, fs *flag.FlagSet) action
}

// Command is a command that a program adds to those in this package, such as `linkreel up` in the
// program that includes the servers. It parses its own flags.
type Command struct {
	Name, Args, Short string // one word, its arguments and a line of help
	Run               func(ctx context.Context, args []string, env Env) error
}

// Usage returns an error that reports incorrect use of a [Command]. It ends the run with [ExitUsage].
func Usage(format string, a ...any) error { return usagef(format, a...) }

// program contains all commands: those in this package and those that the caller added.
type program struct {
	commands []command
	added    []Command
}

func commands() []command {
	return slices.Concat(linkCommands(), videoCommands(), accountCommands(), eventCommands(), applyCommands(), adminCommands(), mcpCommands())
}

// has reports whether word is the first word of a command or of a group of commands.
func (p program) has(word string) bool {
	return slices.ContainsFunc(p.commands, func(c command) bool { return strings.Fields(c.name)[0] == word })
}

// Run runs a command from this package or from added, and returns the exit code.
func Run(ctx context.Context, args []string, env Env, added ...Command) int {
	err := program{commands(), added}.run(ctx, args, env)
	if err == nil {
		return ExitOK
	}
	if !errors.Is(err, flag.ErrHelp) && !errors.Is(err, errStopped) {
		fmt.Fprintln(env.Err, "linkreel:", explain(err))
		var documented *documentedError
		if errors.As(err, &documented) {
			fmt.Fprintln(env.Err, "See", clean(documented.page))
		}
	}
	return exitCode(ctx, err)
}

func (p program) run(ctx context.Context, args []string, env Env) error {
	flags, args := leading(args)
	if len(args) == 0 {
		p.help(env.Out, "")
		return nil
	}
	switch args[0] {
	case "help", "-h", "--help":
		return p.helpOn(env.Out, args[1:])
	case "version", "-v", "--version":
		return showVersion(env.Out, append(flags, args[1:]...))
	case "completion":
		return completion(env, args[1:])
	case "__complete":
		p.complete(env.Out, args[1:])
		return nil
	}
	for _, c := range p.added {
		if c.Name == args[0] {
			return c.Run(ctx, append(flags, args[1:]...), env)
		}
	}
	c, rest, ok := p.find(args)
	if !ok { // "linkreel links" without a command lists the commands of the group
		group := args[0]
		if p.has(group) && (len(args) == 1 || isHelp(args[1])) {
			p.help(env.Out, group)
			return nil
		}
		return p.unknown(args)
	}
	a := &app{env: env}
	fs, do := a.prepare(c)
	words, err := parse(fs, append(flags, rest...))
	if errors.Is(err, flag.ErrHelp) {
		describe(env.Out, c, fs)
		return nil
	}
	if err != nil {
		return unknownFlag(err, c, fs)
	}
	err = do(ctx, words)
	var refused *client.APIError
	if errors.As(err, &refused) && !a.quiet && !a.json && !strings.HasPrefix(c.name, "admin ") { // the operator's URL does not serve the docs
		if page := refused.DocURL; strings.HasPrefix(page, "/") {
			return &documentedError{err, a.address() + page}
		}
	}
	return err
}

// documentedError is an API error with the URL of the page that explains it.
type documentedError struct {
	error
	page string
}

func (e *documentedError) Unwrap() error { return e.error }

// documented returns an error that the service would report in the same way. Like the service's own
// errors, it links to the page about the code.
func documented(status int, code, message string) *client.APIError {
	return &client.APIError{Status: status, Code: code, Message: message, DocURL: "/docs/guides/errors#" + strings.ToLower(code)}
}

func isHelp(word string) bool { return word == "help" || word == "-h" || word == "--help" }

// prepare returns a command's flags and its action.
func (a *app) prepare(c command) (*flag.FlagSet, action) {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	a.globals(fs)
	return fs, c.setup(a, fs)
}

// find returns the matching command with the most words.
func (p program) find(args []string) (command, []string, bool) {
	for n := min(3, len(args)); n > 0; n-- {
		name := strings.Join(args[:n], " ")
		for _, c := range p.commands {
			if c.name == name {
				return c, args[n:], true
			}
		}
	}
	return command{}, nil, false
}

// parse accepts flags before, between and after the words. "--" ends the flags.
func parse(fs *flag.FlagSet, args []string) (words []string, err error) {
	for len(args) > 0 {
		if args[0] == "--" {
			return append(words, args[1:]...), nil
		}
		if args[0] == "-" || !strings.HasPrefix(args[0], "-") {
			words, args = append(words, args[0]), args[1:]
			continue
		}
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		args = fs.Args()
	}
	return words, nil
}

// app is the state that every command can use.
type app struct {
	env          Env
	json, quiet  bool
	baseURL, key string
}

func (a *app) globals(fs *flag.FlagSet) {
	fs.BoolVar(&a.json, "json", false, "print results as JSON, one object per line")
	fs.BoolVar(&a.quiet, "quiet", false, "do not print messages and progress")
	fs.StringVar(&a.baseURL, "base-url", "", "address of the API (default LINKREEL_BASE_URL, then the login)")
	fs.StringVar(&a.key, "key", "", "API key (default LINKREEL_API_KEY, then the login)")
}

// connect creates a client from the flags, the environment and the login, in that order of
// precedence.
func (a *app) connect() (*client.Client, error) {
	saved, err := a.login()
	if err != nil {
		return nil, err
	}
	base := cmp.Or(a.baseURL, a.env.Getenv("LINKREEL_BASE_URL"), saved.BaseURL)
	key := cmp.Or(a.key, a.env.Getenv("LINKREEL_API_KEY"))
	if key == "" && base == saved.BaseURL {
		key = saved.Key // use a key only with the deployment for which it was stored
	}
	if base == "" || key == "" {
		return nil, &client.APIError{
			Status: 401, Code: "MISSING_API_KEY",
			Message: "No deployment or no key: run `linkreel login`, or set LINKREEL_BASE_URL and LINKREEL_API_KEY",
		}
	}
	return client.New(client.Config{BaseURL: base, Key: key, UserAgent: "linkreel-cli/1", Sleep: a.env.Sleep})
}

// print writes v as JSON or calls plain.
func (a *app) print(v any, plain func(w io.Writer)) error {
	if !a.json {
		plain(a.env.Out)
		return nil
	}
	enc := json.NewEncoder(a.env.Out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// note prints a message for people.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.env.Err, format+"\n", args...)
	}
}

// clean removes characters from external text that could control a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\ufffd'
		}
		return r
	}, s)
}

func explain(err error) string {
	var e *client.APIError
	if !errors.As(err, &e) {
		return clean(strings.ReplaceAll(err.Error(), "\n", "; ")) // errors.Join puts each error on its own line
	}
	text := e.Error()
	switch {
	case e.Code == "PLAN_REQUIRED":
		text += fmt.Sprintf("; your plan is %s, but this needs %s", e.CurrentPlan, e.RequiredPlan)
	case e.Code == "INSUFFICIENT_SCOPE":
		text += "; the key lacks " + e.RequiredScope
	case e.RestartAfter != "":
		text += "; continue with --after " + e.RestartAfter
	case e.RetryAfter > 0:
		text += fmt.Sprintf("; try again in %s", e.RetryAfter)
	}
	return clean(text)
}

func exitCode(ctx context.Context, err error) int {
	var (
		usage *usageError
		some  *partly
		api   *client.APIError
		video *client.VideoError
	)
	switch {
	case ctx.Err() != nil && !errors.As(err, &usage): // check this first: a stopped call can fail in many ways
		return ExitInterrupted
	case errors.Is(err, flag.ErrHelp):
		return ExitOK
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &some):
		return ExitPartly
	case errors.As(err, &video):
		return ExitVideoFailed
	case errors.Is(err, client.ErrWebhook):
		return ExitRefused
	case !errors.As(err, &api):
		if unreachable(err) {
			return ExitUnavailable
		}
		return ExitFailed
	case api.Status == 401, api.Status == 403:
		return ExitAuth
	case api.Status == 404:
		return ExitNotFound
	case api.Status == 429, api.Status >= 500:
		return ExitUnavailable
	default:
		return ExitRefused
	}
}

// unreachable reports whether err means that the service did not respond: an unknown host, an
// unused port, a closed connection, or a call that took too long.
func unreachable(err error) bool {
	var dial *net.OpError // from an upload, which does not use the client
	return client.IsConnection(err) || errors.As(err, &dial) || errors.Is(err, context.DeadlineExceeded)
}
