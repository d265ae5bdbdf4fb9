package cli

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"text/tabwriter"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// action runs a command with its arguments.
type action = func(ctx context.Context, args []string) error

// asks returns the action for a command with one argument, described by what, or without arguments
// if what is "". The action runs the checks in must and then calls do with the client that dial
// returns.
func asks[C any](dial func() (C, error), what string, do func(context.Context, C, string) error, must []func() error) action {
	return func(ctx context.Context, args []string) error {
		word, err := "", none(args)
		if what != "" {
			word, err = one(args, what)
		}
		if err != nil {
			return err
		}
		for _, holds := range must {
			if err := holds(); err != nil {
				return err
			}
		}
		c, err := dial()
		if err != nil {
			return err
		}
		return do(ctx, c, word)
	}
}

func (a *app) asks(what string, do func(context.Context, *client.Client, string) error, must ...func() error) action {
	return asks(a.connect, what, do, must)
}

func one(args []string, what string) (string, error) {
	if len(args) != 1 {
		return "", usagef("give exactly one %s", what)
	}
	return args[0], nil
}

func none(args []string) error {
	if len(args) > 0 {
		return usagef("unexpected argument %q", args[0])
	}
	return nil
}

// each returns the action for a command that calls do for every ID on the command line. It
// continues after failures.
func each[C any](a *app, dial func() (C, error), done string, do func(context.Context, C, string) error) action {
	return func(ctx context.Context, ids []string) error {
		if len(ids) == 0 {
			return usagef("give at least one ID")
		}
		c, err := dial()
		if err != nil {
			return err
		}
		return a.every(ctx, ids, func(id string) error {
			if err := do(ctx, c, id); err != nil {
				return err
			}
			return a.did(done, id)
		})
	}
}

func (a *app) each(done string, do func(context.Context, *client.Client, string) error) action {
	return each(a, a.connect, done, do)
}

// every calls do for each name and prints the names that failed.
func (a *app) every(ctx context.Context, names []string, do func(name string) error) error {
	var last error
	failed := 0
	for _, name := range names {
		if err := do(name); err != nil {
			if ctx.Err() != nil { // the user stopped the command, so do not try the others
				return err
			}
			last, failed = err, failed+1
			if len(names) > 1 {
				fmt.Fprintf(a.env.Err, "linkreel: %s: %s\n", clean(name), explain(err))
			}
		}
	}
	if failed > 0 && len(names) > 1 {
		return &partly{failed, len(names)}
	}
	return last
}

// did reports a successful operation on the record with the given ID.
func (a *app) did(done, id string) error {
	return a.print(map[string]any{"id": id, done: true}, func(io.Writer) { a.note("%s %s", done, clean(id)) })
}

// answer prints the API's response, or returns its error.
func (a *app) answer(v any, err error, plain func(w io.Writer)) error {
	if err != nil {
		return err
	}
	return a.print(v, plain)
}

// table prints records in columns, or as JSON lines.
type table struct {
	a *app
	w *tabwriter.Writer
}

func (a *app) table(head ...string) *table {
	t := &table{a: a, w: tabwriter.NewWriter(a.env.Out, 0, 0, 2, ' ', 0)}
	if !a.json {
		fmt.Fprintln(t.w, strings.Join(head, "\t"))
	}
	return t
}

// show prints records. most is the limit; 0 means all of them.
func show[T any](t *table, records iter.Seq2[T, error], most int, cells func(T) []string) error {
	n := 0
	for record, err := range records {
		if err != nil {
			return err
		}
		if err := t.a.print(record, func(io.Writer) {
			row := cells(record)
			for i, c := range row {
				row[i] = strings.ReplaceAll(clean(c), "\t", " ")
			}
			fmt.Fprintln(t.w, strings.Join(row, "\t"))
		}); err != nil {
			return err
		}
		if n++; n == most {
			break
		}
	}
	return t.w.Flush()
}

// facts prints names and values. It skips empty values.
func facts(w io.Writer, pairs ...string) {
	for len(pairs) > 1 {
		name, value := pairs[0], pairs[1]
		if pairs = pairs[2:]; value != "" {
			fmt.Fprintf(w, "%-16s %s\n", name, clean(value))
		}
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func when(m *client.Time) string {
	if m == nil {
		return ""
	}
	return m.Time().Format(time.DateTime)
}
