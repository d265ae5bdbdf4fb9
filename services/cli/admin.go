package cli

import (
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

// The operator's commands speak to an address and by a token of their own.
func adminCommands() []command {
	return []command{
		{"admin accounts list", "", "list accounts, for operators", adminAccounts},
		{"admin accounts create", "NAME", "make an account, for operators", adminCreate},
		{"admin sign-in-link", "ACCOUNT", "make a link that signs a person in to the console, such as the first owner", adminSignIn},
		{"admin accounts suspend", "ID", "stop an account, its links and its pages", adminSuspend(true)},
		{"admin accounts resume", "ID", "lift a suspension", adminSuspend(false)},
		{"admin accounts delete", "ID", "erase a suspended account with all that it has", adminDelete},
		{"admin takedowns list", "", "list links and videos that were taken down", adminTakedowns},
		{"admin takedowns add", "ADDRESS|ID", "take down a link or video by its address, lnk_… or vid_…", adminTakeDown},
		{"admin takedowns lift", "ID…", "bring back what was taken down", adminLift},
	}
}

// operator is what the operator's commands need.
type operator struct {
	*app
	address, token string
}

func (a *app) operator(fs *flag.FlagSet) *operator {
	o := &operator{app: a}
	fs.StringVar(&o.address, "admin-url", "", "`address` of the operator's API (else LINKREEL_ADMIN_URL, else the stack that runs here)")
	fs.StringVar(&o.token, "admin-token", "", "operator's `token` (else LINKREEL_ADMIN_TOKEN, else the stack that runs here)")
	return o
}

func (o *operator) dial() (*client.Operator, error) {
	address, token := first(o.address, o.env.Getenv("LINKREEL_ADMIN_URL")), first(o.token, o.env.Getenv("LINKREEL_ADMIN_TOKEN"))
	if address == "" && token == "" {
		if s, err := o.localStack(); err == nil {
			address, token = s.AdminURL, s.AdminToken
		}
	}
	if address == "" || token == "" {
		return nil, &client.Error{Status: 401, Code: "MISSING_API_KEY", Message: "No address or token of the operator's API: set LINKREEL_ADMIN_URL and LINKREEL_ADMIN_TOKEN"}
	}
	return client.NewOperator(client.Config{BaseURL: address, Key: token, UserAgent: "linkreel-cli/1", Sleep: o.env.Sleep})
}

func adminAccounts(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	o := a.operator(fs)
	search := fs.String("search", "", "only accounts with this `text` in name or id")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		c, err := o.dial()
		if err != nil {
			return err
		}
		t := a.table("ID", "PLAN", "STATE", "CREATED", "NAME")
		for acc, err := range c.Accounts(ctx, *search) {
			if err != nil {
				return err
			}
			state := acc.State
			if state == "" {
				state = map[bool]string{true: "suspended", false: "active"}[acc.Suspended]
			}
			if err := t.row(acc, acc.ID, acc.Plan, state, acc.CreatedAt.Time().Format(time.DateTime), acc.Name); err != nil {
				return err
			}
		}
		return t.end()
	}
}

func adminCreate(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	o := a.operator(fs)
	plan := fs.String("plan", "free", "`plan` of the account: free, creator, business or enterprise")
	return func(ctx context.Context, args []string) error {
		name, err := one(args, "NAME")
		if err != nil {
			return err
		}
		c, err := o.dial()
		if err != nil {
			return err
		}
		made, err := c.CreateAccount(ctx, name, *plan)
		if err != nil {
			return err
		}
		return a.print(made, func(w io.Writer) { fmt.Fprintln(w, clean(made.ID)) })
	}
}

func adminSignIn(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	o := a.operator(fs)
	name := fs.String("name", "Owner", "`name` of the new member")
	role := fs.String("role", "owner", "`role` of the new member: viewer, member, admin or owner")
	member := fs.String("member", "", "`id` of somebody who is a member already, in place of a new one")
	return func(ctx context.Context, args []string) error {
		account, err := one(args, "ACCOUNT")
		if err != nil {
			return err
		}
		c, err := o.dial()
		if err != nil {
			return err
		}
		var link *client.SignInLink
		if *member != "" {
			link, err = c.MemberSignInLink(ctx, account, *member)
		} else {
			link, err = c.SignInLink(ctx, account, *name, *role)
		}
		if err != nil {
			return err
		}
		return a.print(link, func(w io.Writer) {
			fmt.Fprintln(w, clean(link.URL))
			a.note("open it once, before %s", link.ExpiresAt.Time().Local().Format(time.TimeOnly))
		})
	}
}

func adminSuspend(suspended bool) func(*app, *flag.FlagSet) func(context.Context, []string) error {
	return func(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
		o := a.operator(fs)
		return func(ctx context.Context, args []string) error {
			id, err := one(args, "ID")
			if err != nil {
				return err
			}
			c, err := o.dial()
			if err != nil {
				return err
			}
			if err := c.Suspend(ctx, id, suspended); err != nil {
				return err
			}
			return a.print(map[string]any{"id": id, "suspended": suspended}, func(io.Writer) {
				a.note("%s is %s", clean(id), map[bool]string{true: "suspended", false: "active"}[suspended])
			})
		}
	}
}

func adminDelete(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	o := a.operator(fs)
	sure := fs.Bool("yes", false, "really: nothing of the account comes back")
	return func(ctx context.Context, args []string) error {
		id, err := one(args, "ID")
		if err != nil {
			return err
		}
		if !*sure {
			return usagef("this erases the account with all its links and videos for good; say --yes")
		}
		c, err := o.dial()
		if err != nil {
			return err
		}
		if err := c.DeleteAccount(ctx, id); err != nil {
			return err
		}
		return a.print(map[string]any{"id": id, "state": "deleting"}, func(io.Writer) { a.note("%s is being erased", clean(id)) })
	}
}

func adminTakedowns(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	o := a.operator(fs)
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		c, err := o.dial()
		if err != nil {
			return err
		}
		t := a.table("ID", "WHAT", "SINCE", "REASON")
		for d, err := range c.Takedowns(ctx) {
			if err != nil {
				return err
			}
			if err := t.row(d, d.ID, first(d.URL, d.LinkID, d.VideoID), d.CreatedAt.Time().Format(time.DateTime), d.Reason); err != nil {
				return err
			}
		}
		return t.end()
	}
}

func adminTakeDown(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	o := a.operator(fs)
	reason := fs.String("reason", "", "`why`, which the owner sees")
	return func(ctx context.Context, args []string) error {
		what, err := one(args, "ADDRESS or ID")
		if err != nil {
			return err
		}
		if *reason == "" {
			return usagef("--reason is needed; the owner sees it")
		}
		in := client.TakedownCreate{Reason: *reason}
		switch {
		case strings.HasPrefix(what, "lnk_"):
			in.LinkID = what
		case strings.HasPrefix(what, "vid_"):
			in.VideoID = what
		default:
			in.URL = what
		}
		c, err := o.dial()
		if err != nil {
			return err
		}
		d, err := c.TakeDown(ctx, in)
		if err != nil {
			return err
		}
		return a.print(d, func(io.Writer) {
			a.note("taken down: %s (lift it with linkreel admin takedowns lift %s)", clean(what), clean(d.ID))
		})
	}
}

func adminLift(a *app, fs *flag.FlagSet) func(context.Context, []string) error {
	o := a.operator(fs)
	return func(ctx context.Context, ids []string) error {
		if len(ids) == 0 {
			return usagef("needs at least one ID")
		}
		c, err := o.dial()
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := c.Lift(ctx, id); err != nil {
				return err
			}
			if err := a.print(map[string]any{"id": id, "lifted": true}, func(io.Writer) { a.note("lifted %s", clean(id)) }); err != nil {
				return err
			}
		}
		return nil
	}
}

// readStack reads the file that a running stack leaves.
func readStack(path string) (*stack, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := new(stack)
	return s, json.Unmarshal(b, s)
}
