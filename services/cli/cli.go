// Package cli is the command line of the API: `linkreel links create …` and its
// siblings. Standard output carries results and nothing else, so commands work
// in pipes; what is meant for people goes to standard error. With --json each
// result is one JSON object on a line.
//
// Whatever takes long can be stopped at any moment, SIGKILL included, and be
// started again with the same words: it resumes and makes nothing
// twice.
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

// Exit codes, the same for every command.
const (
	ExitOK          = 0
	ExitFailed      = 1   // anything not named below
	ExitUsage       = 2   // wrong usage
	ExitAuth        = 3   // no usable key, or it may not do this (401, 403)
	ExitNotFound    = 4   // no such record (404)
	ExitRefused     = 5   // the request is refused as it is (400, 409, 412, 422)
	ExitPartly      = 6   // some items of many failed
	ExitUnavailable = 7   // out of reach, too fast or down for now
	ExitVideoFailed = 8   // the video could not be prepared
	ExitInterrupted = 130 // stopped by a signal
)

// Env is the world around a run. [System] is the real one.
type Env struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminal says whether a person watches Err.
	Terminal bool
	Getenv   func(string) string
	// ConfigDir keeps the login, StateDir unfinished uploads.
	ConfigDir, StateDir string
	Now                 func() time.Time
	Sleep               func(ctx context.Context, d time.Duration) error // nil really waits
	// Open shows an address in the person's browser; nil cannot.
	Open func(ctx context.Context, address string) error
}

// pause waits for d, or until ctx ends.
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

// System is the process's own world.
func System() Env {
	e := Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Now: time.Now, Open: openBrowser}
	if info, err := os.Stderr.Stat(); err == nil {
		e.Terminal = info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	}
	e.ConfigDir, _ = os.UserConfigDir() // commands that need it say when it is missing
	e.StateDir, _ = os.UserCacheDir()
	return e
}

// usageError is a mistake in the words of a command.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, a ...any) error { return &usageError{fmt.Sprintf(format, a...)} }

// errStopped ends a run that was meant to last until a signal. The exit code says
// all there is to say.
var errStopped = errors.New("stopped")

// partly is the end of a run in which some of many items failed.
type partly struct{ failed, of int }

func (p *partly) Error() string { return fmt.Sprintf("%d of %d failed", p.failed, p.of) }

// command is one entry of the table. setup adds flags and gives what runs.
type command struct {
	name, args, short string
	setup             func(a *app, fs *flag.FlagSet) action
}

// Command is a command that a program adds to those of this package, such as
// `linkreel up` in the program that brings the servers along. It reads its own
// flags.
type Command struct {
	Name, Args, Short string // one word; what follows it; a line of help
	Run               func(ctx context.Context, args []string, env Env) error
}

// Usage is a mistake in the words of a [Command]; it ends the run with [ExitUsage].
func Usage(format string, a ...any) error { return usagef(format, a...) }

// program is all commands, those of this package and those added.
type program struct {
	commands []command
	added    []Command
}

func commands() []command {
	return slices.Concat(linkCommands(), videoCommands(), accountCommands(), eventCommands(), applyCommands(), adminCommands(), mcpCommands())
}

// words start a command.
func (p program) has(word string) bool {
	return slices.ContainsFunc(p.commands, func(c command) bool { return strings.Fields(c.name)[0] == word })
}

// Run executes a command, of this package or one of added, and gives the exit
// code.
func Run(ctx context.Context, args []string, env Env, added ...Command) int {
	err := program{commands(), added}.run(ctx, args, env)
	if err == nil {
		return ExitOK
	}
	if !errors.Is(err, flag.ErrHelp) && !errors.Is(err, errStopped) {
		fmt.Fprintln(env.Err, "linkreel:", explain(err))
	}
	return exitCode(ctx, err)
}

func (p program) run(ctx context.Context, args []string, env Env) error {
	if len(args) == 0 {
		p.help(env.Out, "")
		return nil
	}
	switch args[0] {
	case "help", "-h", "--help":
		return p.helpOn(env.Out, args[1:])
	case "version", "-v", "--version":
		return showVersion(env.Out, args[1:])
	case "completion":
		return completion(env, args[1:])
	case "__complete":
		p.complete(env.Out, args[1:])
		return nil
	}
	for _, c := range p.added {
		if c.Name == args[0] {
			return c.Run(ctx, args[1:], env)
		}
	}
	c, rest, ok := p.find(args)
	if !ok { // "linkreel links" alone lists the commands of the group
		group := args[0]
		if p.has(group) && (len(args) == 1 || isHelp(args[1])) {
			p.help(env.Out, group)
			return nil
		}
		return usagef("no command %q; see linkreel help", strings.Join(args[:min(3, len(args))], " "))
	}
	a := &app{env: env}
	fs, do := a.prepare(c)
	words, err := parse(fs, rest)
	if errors.Is(err, flag.ErrHelp) {
		describe(env.Out, c, fs)
		return nil
	}
	if err != nil {
		return usagef("%v; see linkreel %s --help", err, c.name)
	}
	return do(ctx, words)
}

func isHelp(word string) bool { return word == "help" || word == "-h" || word == "--help" }

// prepare gives a command's flags and what runs it.
func (a *app) prepare(c command) (*flag.FlagSet, action) {
	fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	a.globals(fs)
	return fs, c.setup(a, fs)
}

// find takes the command with the most words.
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

// parse lets flags stand before, between and after the words; "--" ends them.
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

// app is what every command can use.
type app struct {
	env          Env
	json, quiet  bool
	baseURL, key string
}

func (a *app) globals(fs *flag.FlagSet) {
	fs.BoolVar(&a.json, "json", false, "print results as JSON, one object on a line")
	fs.BoolVar(&a.quiet, "quiet", false, "no progress on standard error")
	fs.StringVar(&a.baseURL, "base-url", "", "address of the API (else LINKREEL_BASE_URL, else the login)")
	fs.StringVar(&a.key, "key", "", "API key (else LINKREEL_API_KEY, else the login)")
}

// connect makes a client from flags, environment and login, in this order.
func (a *app) connect() (*client.Client, error) {
	saved, err := a.login()
	if err != nil {
		return nil, err
	}
	base := cmp.Or(a.baseURL, a.env.Getenv("LINKREEL_BASE_URL"), saved.BaseURL)
	key := cmp.Or(a.key, a.env.Getenv("LINKREEL_API_KEY"))
	if key == "" && base == saved.BaseURL {
		key = saved.Key // a key is for the deployment that it was saved with
	}
	if base == "" || key == "" {
		return nil, &client.Error{
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

// note tells a person how things go.
func (a *app) note(format string, args ...any) {
	if !a.quiet {
		fmt.Fprintf(a.env.Err, format+"\n", args...)
	}
}

// clean makes text from outside harmless for a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\ufffd'
		}
		return r
	}, s)
}

func explain(err error) string {
	var e *client.Error
	if !errors.As(err, &e) {
		return clean(err.Error())
	}
	text := e.Error()
	switch {
	case e.Code == "PLAN_REQUIRED":
		text += fmt.Sprintf("; the plan is %s, required is %s", e.CurrentPlan, e.RequiredPlan)
	case e.Code == "INSUFFICIENT_SCOPE":
		text += "; the key lacks " + e.RequiredScope
	case e.RetryAfter > 0:
		text += fmt.Sprintf("; try again in %s", e.RetryAfter)
	}
	return clean(text)
}

func exitCode(ctx context.Context, err error) int {
	var (
		usage *usageError
		some  *partly
		api   *client.Error
		video *client.VideoError
	)
	switch {
	case ctx.Err() != nil && !errors.As(err, &usage): // first: a stopped call fails in many ways
		return ExitInterrupted
	case errors.Is(err, flag.ErrHelp):
		return ExitOK
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &some):
		return ExitPartly
	case errors.As(err, &video):
		return ExitVideoFailed
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

// unreachable reports whether err means that nobody answered: no such host, no
// listener, a cut connection, or a call that took too long.
func unreachable(err error) bool {
	var dial *net.OpError // of an upload, which is no call of the client's
	return errors.Is(err, client.ErrNoAnswer) || errors.As(err, &dial) || errors.Is(err, context.DeadlineExceeded)
}
