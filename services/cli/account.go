package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func accountCommands() []command {
	return []command{
		{"domains add", "HOSTNAME", "add a host name and print the DNS record to create", domainsAdd},
		{"domains list", "", "list domains", domainsList},
		{"domains get", "ID", "show a domain", domainsGet},
		{"domains stats", "ID", "show the daily visits that no link served", domainsStats},
		{"domains verify", "ID", "check the DNS record now", domainsVerify},
		{"domains update", "ID", "set the addresses for visits that no link serves", domainsUpdate},
		{"domains delete", "ID…", "delete domains", domainsDelete},
		{"keys create", "NAME", "create a key and print it once", keysCreate},
		{"keys list", "", "list keys", keysList},
		{"keys roll", "ID", "replace a key and print the new one", keysRoll},
		{"keys revoke", "ID…", "revoke keys immediately", keysRevoke},
		{"account", "", "show the account that the key belongs to", accountShow},
		{"account update", "", "change the account's name or default domain", accountUpdate},
		{"account export", "", "write all data of the account as JSON Lines", accountExport},
		{"login", "", "store the address and key for later commands", login},
		{"logout", "", "delete the stored key", logout},
	}
}

func domainsAdd(a *app, _ *flag.FlagSet) action {
	return a.domain("HOSTNAME", func(c *client.Client, ctx context.Context, host string) (*client.Domain, error) {
		return c.CreateDomain(ctx, client.DomainCreate{Hostname: host})
	})
}

func domainsGet(a *app, _ *flag.FlagSet) action {
	return a.domain("ID", func(c *client.Client, ctx context.Context, id string) (*client.Domain, error) {
		return c.GetDomain(ctx, id)
	})
}

func domainsStats(a *app, fs *flag.FlagSet) action {
	from := fs.String("from", "", "first `day`, such as 2026-11-01")
	to := fs.String("to", "", "last `day`")
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		s, err := c.GetDomainStats(ctx, id, client.GetDomainStatsQuery{From: *from, To: *to})
		return a.answer(s, err, func(w io.Writer) {
			fmt.Fprintf(w, "%-10s %9s %9s %9s\n", "day", "home", "not found", "ended")
			for _, d := range append(s.Days, client.DomainDay{Date: "total", Home: s.Home, NotFound: s.NotFound, Ended: s.Ended}) {
				fmt.Fprintf(w, "%-10s %9d %9d %9d\n", d.Date, d.Home, d.NotFound, d.Ended)
			}
		})
	})
}

// checkEvery is the pause between checks in `domains verify --wait`. New DNS records can take minutes
// to become visible.
const checkEvery = 15 * time.Second

// domainsVerify fails if the domain is not verified, so a script can rely on the exit code.
func domainsVerify(a *app, fs *flag.FlagSet) action {
	wait := fs.String("wait", "0s", "keep checking for this `long`: 10m, 1h")
	var d *client.Domain
	check := a.domain("ID", func(c *client.Client, ctx context.Context, id string) (_ *client.Domain, err error) {
		length, _ := span(*wait) // already validated by the flag's check
		for end := a.env.Now().Add(length); ; {
			d, err = c.VerifyDomain(ctx, id)
			left := end.Sub(a.env.Now())
			if err != nil || d.Status == "verified" || left <= 0 {
				return d, err
			}
			a.note("not verified yet: %s", clean(text(d.Reason)))
			if err := a.env.pause(ctx, min(checkEvery, left)); err != nil {
				return nil, err
			}
		}
	})
	return func(ctx context.Context, args []string) error {
		if _, ok := span(*wait); !ok {
			return usagef("--wait must be a duration, such as 10m or 1h, not %q", *wait)
		}
		if err := check(ctx, args); err != nil || d.Status == "verified" {
			return err
		}
		return documented(409, "DOMAIN_NOT_VERIFIED", cmp.Or(text(d.Reason), "The DNS record was not found."))
	}
}

func domainsUpdate(a *app, fs *flag.FlagSet) action {
	var in client.DomainUpdate
	textField(fs, "home", "`address` for visits to /; an empty value removes it", &in.HomeURL)
	textField(fs, "not-found", "`address` for visits to unknown links; an empty value removes it", &in.NotFoundURL)
	textField(fs, "expired", "`address` for visits to ended links; an empty value removes it", &in.ExpiredURL)
	return a.domain("ID", func(c *client.Client, ctx context.Context, id string) (*client.Domain, error) {
		if in == (client.DomainUpdate{}) {
			return nil, usagef("nothing to change: give --home, --not-found or --expired")
		}
		return c.UpdateDomain(ctx, id, in)
	})
}

func (a *app) domain(what string, do func(*client.Client, context.Context, string) (*client.Domain, error)) action {
	return a.asks(what, func(ctx context.Context, c *client.Client, word string) error {
		d, err := do(c, ctx, word)
		return a.answer(d, err, func(w io.Writer) {
			facts(w, "id", d.ID, "host name", d.Hostname, "status", d.Status)
			if c := d.Certificate; c.Status != "none" {
				facts(w, "certificate", c.Status, "error", text(c.Error))
			}
			facts(w, "home", text(d.HomeURL), "not found", text(d.NotFoundURL), "after expiry", text(d.ExpiredURL))
			if d.Status != "verified" {
				for _, r := range d.Records {
					fmt.Fprintf(w, "set in DNS       %s %s %q\n", clean(r.Name), clean(r.Type), r.Value)
				}
			}
		})
	})
}

func domainsList(a *app, _ *flag.FlagSet) action {
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		return show(a.table("ID", "HOSTNAME", "STATUS"), c.Domains(ctx), 0, func(d client.Domain) []string {
			return []string{d.ID, d.Hostname, d.Status}
		})
	})
}

func domainsDelete(a *app, _ *flag.FlagSet) action {
	return a.each("deleted", func(ctx context.Context, c *client.Client, id string) error { return c.DeleteDomain(ctx, id) })
}

func keysCreate(a *app, fs *flag.FlagSet) action {
	scopes := fs.String("scopes", "", "comma-separated `list` of permissions; default is all")
	expires := fs.String("expires", "", "`when` the key expires: "+instants)
	return a.asks("NAME", func(ctx context.Context, c *client.Client, name string) error {
		in := client.KeyCreate{Name: name}
		if *scopes != "" {
			in.Scopes = strings.Split(*scopes, ",")
		}
		if *expires != "" {
			in.ExpiresAt = instant(*expires, a.env.Now())
		}
		k, err := c.CreateKey(ctx, in)
		if err != nil {
			return err
		}
		return a.showKey(k)
	})
}

func keysRoll(a *app, fs *flag.FlagSet) action {
	overlap := fs.String("overlap", "0s", "how `long` the old key keeps working: 1h, 7d")
	var length time.Duration
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		k, err := c.RollKey(ctx, id, client.KeyRoll{OverlapSeconds: new(int64(length / time.Second))})
		if err != nil {
			return err
		}
		return a.showKey(k)
	}, func() (err error) {
		length, err = overlapOf(*overlap)
		return err
	})
}

func overlapOf(flag string) (time.Duration, error) {
	d, ok := span(flag)
	if !ok {
		return 0, usagef("--overlap must be a duration, such as 1h or 7d, not %q", flag)
	}
	return d, nil
}

func (a *app) showKey(k *client.KeyCreated) error {
	return a.print(k, func(w io.Writer) {
		a.note("%s (%s): save the key now; it is not shown again", clean(k.Name), clean(k.ID))
		fmt.Fprintln(w, k.Secret)
	})
}

func keysList(a *app, _ *flag.FlagSet) action {
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		t := a.table("ID", "NAME", "KEY", "SCOPES", "LAST USED", "ENDS", "REVOKED")
		return show(t, c.Keys(ctx), 0, func(k client.Key) []string {
			return []string{
				k.ID, k.Name, k.Prefix + "…" + k.Last4, fmt.Sprint(len(k.Scopes)), when(k.LastUsedAt), when(k.ExpiresAt), when(k.RevokedAt),
			}
		})
	})
}

func keysRevoke(a *app, _ *flag.FlagSet) action {
	return a.each("revoked", func(ctx context.Context, c *client.Client, id string) error { return c.RevokeKey(ctx, id) })
}

func accountShow(a *app, _ *flag.FlagSet) action {
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		acc, err := c.GetAccount(ctx)
		return a.answer(acc, err, func(w io.Writer) {
			facts(w, "id", acc.ID, "name", acc.Name, "plan", acc.Plan, "defaultDomainId", text(acc.DefaultDomainID))
			usage, limits := acc.Usage, acc.Limits
			used := func(name string, n int64, most *int64) {
				limit := "no limit"
				if most != nil {
					limit = fmt.Sprintf("of %d", *most)
				}
				fmt.Fprintf(w, "%-16s %d (%s)\n", name, n, limit)
			}
			used("domains", usage.Domains, limits.Domains)
			used("links", usage.Links, limits.Links)
			used("storedBytes", usage.StoredBytes, limits.StoredBytes)
			used("videos", usage.Videos, limits.Videos)
		})
	})
}

func accountUpdate(a *app, fs *flag.FlagSet) action {
	var in client.AccountSettingsUpdate
	textField(fs, "name", "new `name`", &in.Name)
	textField(fs, "default-domain", "`id` of a verified domain for new links, or default for the default host", &in.DefaultDomainID)
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		if in == (client.AccountSettingsUpdate{}) {
			return usagef("nothing to change: give --name or --default-domain")
		}
		acc, err := c.UpdateAccount(ctx, in)
		return a.answer(acc, err, func(w io.Writer) {
			facts(w, "id", acc.ID, "name", acc.Name, "defaultDomainId", text(acc.DefaultDomainID))
		})
	})
}

func accountExport(a *app, _ *flag.FlagSet) action {
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		r, err := c.ExportAccount(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }() // opened only for reading
		_, err = io.Copy(a.env.Out, r)
		return err
	})
}

// credentials contains the data that login stores.
type credentials struct {
	BaseURL string `json:"baseUrl"`
	Key     string `json:"key"`
}

func (a *app) loginFile() (string, error) {
	if a.env.ConfigDir == "" {
		return "", errors.New("no folder for settings: set HOME or XDG_CONFIG_HOME")
	}
	return filepath.Join(a.env.ConfigDir, "linkreel", "credentials.json"), nil
}

// login returns the stored login, or empty credentials if there is none.
func (a *app) login() (credentials, error) {
	var c credentials
	if a.env.ConfigDir == "" {
		return c, nil // the flags and environment variables may be enough
	}
	path, err := a.loginFile()
	if err != nil {
		return c, err
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("cannot read the login: %w", err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return c, fmt.Errorf("cannot read the login %s: %w", path, err)
	}
	return c, nil
}

func login(a *app, fs *flag.FlagSet) action {
	local := fs.Bool(
		"local", false,
		"use the address and key of the stack on this machine, from .local/stack.json or $LINKREEL_DATA_DIR/stack.json",
	)
	plan := fs.String("plan", "business", "with --local: use the demo key of this `plan`")
	browser := fs.Bool("browser", false, "get a key by signing in with the browser; default on a terminal")
	paste := fs.Bool("paste", false, "type the key instead of signing in with the browser")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		// Use the given values unchanged, and ask only for the missing ones.
		in := credentials{BaseURL: cmp.Or(a.baseURL, a.env.Getenv("LINKREEL_BASE_URL")), Key: cmp.Or(a.key, a.env.Getenv("LINKREEL_API_KEY"))}
		if *local {
			stack, err := a.localStack()
			if err != nil {
				return err
			}
			in = credentials{BaseURL: stack.BaseURL, Key: stack.Keys[*plan]}
			if in.Key == "" {
				return usagef("the running stack has no demo key for plan %q", *plan)
			}
		}
		r := bufio.NewReader(a.env.In)
		var err error
		if in.BaseURL == "" {
			if in.BaseURL, err = a.ask(ctx, r, "Address of the API: ", false); err != nil {
				return err
			}
		}
		if in.Key == "" && (*browser || a.env.Terminal && !*paste) {
			if in.Key, err = a.keyByBrowser(ctx, in.BaseURL); err != nil {
				return err
			}
		}
		if in.Key == "" {
			if in.Key, err = a.ask(ctx, r, "API key: ", true); err != nil {
				return err
			}
		}
		a.baseURL, a.key = in.BaseURL, in.Key
		c, err := a.connect()
		if err != nil {
			return err
		}
		acc, err := c.GetAccount(ctx) // do not store a key that does not work
		if err != nil {
			return err
		}
		path, err := a.loginFile()
		if err != nil {
			return err
		}
		if err := save(path, in); err != nil {
			return fmt.Errorf("cannot store the login: %w", err)
		}
		return a.print(map[string]any{"baseUrl": in.BaseURL, "account": acc.Name, "plan": acc.Plan}, func(io.Writer) {
			a.note("logged in to %s as %s", clean(in.BaseURL), clean(acc.Name))
		})
	}
}

func logout(a *app, _ *flag.FlagSet) action {
	return func(_ context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		path, err := a.loginFile()
		if err != nil {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
}

// ask reads a line. It does not echo a secret to a terminal.
func (a *app) ask(ctx context.Context, r *bufio.Reader, prompt string, secret bool) (string, error) {
	if a.env.Terminal {
		fmt.Fprint(a.env.Err, prompt)
		if f, ok := a.env.In.(*os.File); ok && secret && echo(ctx, f, false) {
			defer func() { echo(context.WithoutCancel(ctx), f, true); fmt.Fprintln(a.env.Err) }()
		}
	}
	line, err := r.ReadString('\n')
	if line = strings.TrimSpace(line); line == "" {
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		return "", usagef("no input")
	}
	return line, nil
}

// echo turns the terminal's echo on or off with stty, and reports whether that succeeded.
func echo(ctx context.Context, f *os.File, on bool) bool {
	word := "-echo"
	if on {
		word = "echo"
	}
	cmd := exec.CommandContext(ctx, "stty", word)
	cmd.Stdin = f
	return cmd.Run() == nil
}

type stack struct {
	BaseURL    string            `json:"baseUrl"`
	Keys       map[string]string `json:"keys"`
	AdminURL   string            `json:"adminUrl"`
	AdminToken string            `json:"adminToken"`
}

// localStack finds the file that `linkreel up` writes for a running stack. The file is in .local in
// the current folder or one of its parents, or in a second stack's data directory.
func (a *app) localStack() (*stack, error) {
	if data := a.env.Getenv("LINKREEL_DATA_DIR"); data != "" {
		if s, err := readStack(filepath.Join(data, "stack.json")); !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if s, err := readStack(filepath.Join(dir, ".local", "stack.json")); !errors.Is(err, fs.ErrNotExist) {
			return s, err
		}
		if dir == filepath.Dir(dir) {
			return nil, errors.New("no .local/stack.json in this folder or a parent: run this in the folder in which `make run` runs, " +
				"or with the LINKREEL_DATA_DIR that the stack was started with")
		}
		dir = filepath.Dir(dir)
	}
}

// save writes v to a file that only the user can read. After a crash, the file contains either the
// old or the new content.
func save(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // has no effect after the rename
	if _, err := f.Write(append(b, '\n')); err != nil {
		_ = f.Close() // report the write error instead
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close() // as above
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
