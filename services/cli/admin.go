package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// The operator's commands use a separate URL and token.
func adminCommands() []command {
	return []command{
		{"admin accounts list", "", "list accounts (operators only)", adminAccounts},
		{"admin accounts create", "NAME", "create an account (operators only)", adminCreate},
		{"admin sign-in-link", "ACCOUNT", "create a link that signs someone in to the console, such as the first owner", adminSignIn},
		{"admin accounts suspend", "ID", "suspend an account with its links and pages", adminSuspend(true)},
		{"admin accounts resume", "ID", "lift a suspension", adminSuspend(false)},
		{"admin accounts delete", "ID", "erase a suspended account and all its data", adminDelete},
		{"admin webhooks", "", "list failing webhooks of all accounts", adminWebhooks},
		{"admin recovery show", "", "show the last restore from a backup, and what is still paused", adminRecovery},
		{"admin recovery resume", "", "after a restore, send webhooks again and turn the janitor on", adminResume},
		{"admin takedowns list", "", "list links and videos that were taken down", adminTakedowns},
		{"admin takedowns add", "ADDRESS|ID", "take down a link or video, given by its address or ID", adminTakeDown},
		{"admin takedowns lift", "ID…", "lift takedowns", adminLift},
	}
}

// operator contains the flags for the operator's commands.
type operator struct {
	*app
	address, token string
}

func (a *app) operator(fs *flag.FlagSet) *operator {
	o := &operator{app: a}
	fs.StringVar(&o.address, "admin-url", "", "`address` of the operator's API (default LINKREEL_ADMIN_URL, then the stack on this machine)")
	fs.StringVar(&o.token, "admin-token", "", "operator's `token` (default LINKREEL_ADMIN_TOKEN, then the stack on this machine)")
	return o
}

func (o *operator) dial() (*client.Operator, error) {
	address, token := cmp.Or(o.address, o.env.Getenv("LINKREEL_ADMIN_URL")), cmp.Or(o.token, o.env.Getenv("LINKREEL_ADMIN_TOKEN"))
	if address == "" && token == "" {
		if s, err := o.localStack(); err == nil {
			address, token = s.AdminURL, s.AdminToken
		}
	}
	if address == "" || token == "" {
		return nil, &client.APIError{
			Status: 401, Code: "MISSING_API_KEY",
			Message: "No address or token for the operator's API: set LINKREEL_ADMIN_URL and LINKREEL_ADMIN_TOKEN",
		}
	}
	return client.NewOperator(client.Config{BaseURL: address, Key: token, UserAgent: "linkreel-cli/1", Sleep: o.env.Sleep})
}

func (o *operator) asks(what string, do func(context.Context, *client.Operator, string) error, must ...func() error) action {
	return asks(o.dial, what, do, must)
}

func adminAccounts(a *app, fs *flag.FlagSet) action {
	o := a.operator(fs)
	search := fs.String("search", "", "only accounts with this `text` in their name or id")
	return o.asks("", func(ctx context.Context, c *client.Operator, _ string) error {
		return show(a.table("ID", "PLAN", "STATE", "CREATED", "NAME"), c.AdminAccounts(ctx, client.AdminListAccountsQuery{Q: *search}), 0, func(acc client.OperatorAccount) []string {
			return []string{acc.ID, acc.Plan, acc.State, when(&acc.CreatedAt), acc.Name}
		})
	})
}

func adminCreate(a *app, fs *flag.FlagSet) action {
	o := a.operator(fs)
	plan := fs.String("plan", "free", "`plan` of the account: free, creator, business or enterprise")
	return o.asks("NAME", func(ctx context.Context, c *client.Operator, name string) error {
		made, err := c.AdminCreateAccount(ctx, client.AccountCreate{Name: name, Plan: *plan})
		return a.answer(made, err, func(w io.Writer) { fmt.Fprintln(w, clean(made.ID)) })
	})
}

func adminSignIn(a *app, fs *flag.FlagSet) action {
	o := a.operator(fs)
	name := fs.String("name", "Owner", "`name` of the new member")
	role := fs.String("role", "owner", "`role` of the new member: viewer, member, admin or owner")
	member := fs.String("member", "", "`id` of an existing member, instead of a new one")
	return o.asks("ACCOUNT", func(ctx context.Context, c *client.Operator, account string) error {
		in := client.SignInLinkCreate{Name: *name, Role: *role}
		if *member != "" {
			in = client.SignInLinkCreate{MemberID: *member}
		}
		link, err := c.AdminCreateSignInLink(ctx, account, in)
		return a.answer(link, err, func(w io.Writer) {
			fmt.Fprintln(w, clean(link.URL))
			a.note("the link works once, until %s", link.ExpiresAt.Time().Local().Format(time.TimeOnly))
		})
	})
}

func adminSuspend(suspended bool) func(*app, *flag.FlagSet) action {
	return func(a *app, fs *flag.FlagSet) action {
		return a.operator(fs).asks("ID", func(ctx context.Context, c *client.Operator, id string) error {
			_, err := c.AdminUpdateAccount(ctx, id, client.AccountUpdate{Suspended: client.Set(suspended)})
			return a.answer(map[string]any{"id": id, "suspended": suspended}, err, func(io.Writer) {
				a.note("%s is %s", clean(id), map[bool]string{true: "suspended", false: "active"}[suspended])
			})
		})
	}
}

func adminDelete(a *app, fs *flag.FlagSet) action {
	o := a.operator(fs)
	sure := fs.Bool("yes", false, "confirm: the account cannot be restored")
	return o.asks("ID", func(ctx context.Context, c *client.Operator, id string) error {
		_, err := c.AdminDeleteAccount(ctx, id)
		return a.answer(map[string]any{"id": id, "state": "deleting"}, err, func(io.Writer) { a.note("%s is being erased", clean(id)) })
	}, func() error {
		if !*sure {
			return usagef("this permanently erases the account with all its links and videos; confirm with --yes")
		}
		return nil
	})
}

func adminWebhooks(a *app, fs *flag.FlagSet) action {
	o := a.operator(fs)
	return o.asks("", func(ctx context.Context, c *client.Operator, _ string) error {
		return show(a.table("ID", "ACCOUNT", "HOST", "FAILING SINCE", "REASON", "WAITING"), c.AdminFailingWebhooks(ctx), 0, func(w client.FailingWebhook) []string {
			return []string{w.ID, w.AccountID, w.Host, when(&w.FailingSince), w.Reason, fmt.Sprint(w.Waiting)}
		})
	})
}

func adminRecovery(a *app, fs *flag.FlagSet) action {
	o := a.operator(fs)
	return o.asks("", func(ctx context.Context, c *client.Operator, _ string) error {
		r, err := c.AdminGetRecovery(ctx)
		return a.answer(r, err, func(w io.Writer) { recoveryFacts(w, r) })
	})
}

func adminResume(a *app, fs *flag.FlagSet) action {
	o := a.operator(fs)
	webhooks := fs.Bool("webhooks", false, "send the waiting messages, and send webhooks again")
	janitor := fs.Bool("janitor", false, "let the janitor remove unused objects again")
	restore := fs.String("restore", "", "`id` of the restore, as \"admin recovery show\" prints it (default: the last one)")
	return o.asks("", func(ctx context.Context, c *client.Operator, _ string) error {
		r, err := c.AdminGetRecovery(ctx)
		if err == nil && r.RestoreID != nil {
			id := cmp.Or(*restore, *r.RestoreID)
			if id == *r.RestoreID {
				a.note("the restore %s on %s, with the data from %s", clean(id), when(r.RestoredAt), when(r.DataAt))
			}
			r, err = c.AdminResume(ctx, client.RecoveryResume{RestoreID: id, Webhooks: *webhooks, Janitor: *janitor})
		}
		return a.answer(r, err, func(w io.Writer) { recoveryFacts(w, r) })
	}, func() error {
		if !*webhooks && !*janitor {
			return usagef("select what to resume: --webhooks, --janitor, or both")
		}
		return nil
	})
}

// recoveryFacts prints what is paused after a restore.
func recoveryFacts(w io.Writer, r *client.Recovery) {
	if r.RestoreID == nil {
		fmt.Fprintln(w, "never restored; nothing is paused")
		return
	}
	state := func(paused bool, since *client.Time) string {
		if paused {
			return "paused"
		}
		return "resumed " + when(since)
	}
	facts(w, "restore", *r.RestoreID, "restored", when(r.RestoredAt), "data from", when(r.DataAt),
		"webhooks", state(r.WebhooksPaused, r.WebhooksResumedAt), "janitor", state(r.JanitorPaused, r.JanitorResumedAt))
}

func adminTakedowns(a *app, fs *flag.FlagSet) action {
	o := a.operator(fs)
	return o.asks("", func(ctx context.Context, c *client.Operator, _ string) error {
		return show(a.table("ID", "WHAT", "SINCE", "REASON"), c.AdminTakedowns(ctx), 0, func(d client.Takedown) []string {
			return []string{d.ID, cmp.Or(d.URL, d.LinkID, d.VideoID), when(&d.CreatedAt), d.Reason}
		})
	})
}

func adminTakeDown(a *app, fs *flag.FlagSet) action {
	o := a.operator(fs)
	reason := fs.String("reason", "", "`text` that tells the owner why")
	return o.asks("ADDRESS or ID", func(ctx context.Context, c *client.Operator, what string) error {
		in := client.TakedownCreate{Reason: *reason}
		switch {
		case strings.HasPrefix(what, "lnk_"):
			in.LinkID = what
		case strings.HasPrefix(what, "vid_"):
			in.VideoID = what
		default:
			in.URL = what
		}
		d, err := c.AdminTakeDown(ctx, in)
		return a.answer(d, err, func(io.Writer) {
			a.note("taken down: %s (lift it with linkreel admin takedowns lift %s)", clean(what), clean(d.ID))
		})
	}, func() error {
		if *reason == "" {
			return usagef("--reason is required; the owner sees it")
		}
		return nil
	})
}

func adminLift(a *app, fs *flag.FlagSet) action {
	return each(a, a.operator(fs).dial, "lifted", func(ctx context.Context, c *client.Operator, id string) error { return c.AdminLiftTakedown(ctx, id) })
}

// readStack reads the file that a running stack writes.
func readStack(path string) (*stack, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := new(stack)
	return s, json.Unmarshal(b, s)
}
