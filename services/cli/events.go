package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func eventCommands() []command {
	return []command{
		{"events", "", "show what happened, newest first; --follow shows new events as they happen", eventsShow},
		{"webhooks create", "URL", "create a webhook that sends events to an address, and print its secret once", webhooksCreate},
		{"webhooks list", "", "list webhooks", webhooksList},
		{"webhooks update", "ID", "change a webhook", webhooksUpdate},
		{"webhooks delete", "ID…", "delete webhooks", webhooksDelete},
		{"webhooks roll", "ID", "replace the secret and print the new one", webhooksRoll},
		{"webhooks test", "ID", "send a test message", webhooksTest},
		{"webhooks deliveries", "ID", "list deliveries and their results", webhooksDeliveries},
		{"webhooks retry", "ID DELIVERY", "send a delivery again", webhooksRetry},
		{"webhooks replay", "ID", "send the events from a time range again", webhooksReplay},
		{"webhooks verify", "FILE", "check the signature of a message whose body is in a file, or - for standard input", webhooksVerify},
		{"webhooks listen", "", "send each event once to a receiver on this machine while the command runs", webhooksListen},
	}
}

func eventsShow(a *app, fs *flag.FlagSet) action {
	follow := fs.Bool("follow", false, "keep printing new events until Ctrl-C")
	types := fs.String("type", "", "comma-separated `list` of types; default is all")
	object := fs.String("object", "", "only events for the record with this `id`")
	after := fs.String("after", "", "only events after the one with this `id`, or after this cursor, oldest first")
	limit := fs.Int("limit", 0, "stop after `n` events; without --after and --follow, the default is 20")
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		q := client.ListEventsQuery{Type: listed(*types), Object: *object, After: given(*after)}
		if *follow {
			return a.followEvents(ctx, c, q, *limit)
		}
		if q.After == nil {
			*limit = cmp.Or(*limit, 20)
		}
		return a.pastEvents(ctx, c, q, *limit)
	}, func() error {
		if *limit < 0 {
			return usagef("--limit must not be negative")
		}
		return nil
	})
}

// eventPage is the maximum number of events in one response.
const eventPage = 100

// pastEvents prints existing events. most is the limit; 0 means all of them.
func (a *app) pastEvents(ctx context.Context, c *client.Client, q client.ListEventsQuery, most int) error {
	for shown := 0; ; {
		q.Limit = eventPage
		if most > 0 {
			q.Limit = min(eventPage, most-shown)
		}
		page, err := c.ListEvents(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page.Data {
			if err := a.showEvent(e); err != nil {
				return err
			}
		}
		if shown += len(page.Data); !page.HasMore || page.NextCursor == nil || shown == most {
			return nil
		}
		if q.After != nil {
			q.After = page.NextCursor
		} else {
			q.Cursor = page.NextCursor
		}
	}
}

// followEvents prints new events until it receives a signal. most is the limit; 0 means unlimited.
func (a *app) followEvents(ctx context.Context, c *client.Client, q client.ListEventsQuery, most int) error {
	q.Limit = eventPage
	shown, enough := 0, errors.New("enough")
	_, err := c.FollowEvents(ctx, q, func(e client.Event) error {
		if err := a.showEvent(e); err != nil {
			return err
		}
		if shown++; shown == most {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		return nil
	}
	return followed(ctx, err)
}

// followed returns the result of a command that runs until it is stopped. A signal is not a
// failure.
func followed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errStopped
	}
	return err
}

func (a *app) showEvent(e client.Event) error {
	return a.print(e, func(w io.Writer) {
		who := e.Actor.Name
		if who == "" {
			who = e.Actor.ID
		}
		fmt.Fprintf(
			w, "%s  %-20s %-28s %s  %s\n", e.CreatedAt.Time().Format(time.RFC3339), clean(e.Type), clean(e.Object), clean(e.ID),
			clean(who),
		)
	})
}

// given returns a pointer to a command-line value, or nil if the value is empty.
func given(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func listed(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func webhooksCreate(a *app, fs *flag.FlagSet) action {
	types := fs.String("events", "*", "comma-separated `list` of types")
	description := fs.String("description", "", "a `note` for yourself")
	return a.asks("URL", func(ctx context.Context, c *client.Client, address string) error {
		w, err := c.CreateWebhook(ctx, client.WebhookCreate{URL: address, Events: listed(*types), Description: *description})
		if err != nil {
			return err
		}
		return a.showSecret(w)
	})
}

func (a *app) showSecret(h *client.WebhookCreated) error {
	return a.print(h, func(w io.Writer) {
		a.note("%s: save the secret now; it is not shown again", clean(h.ID))
		fmt.Fprintln(w, h.Secret)
	})
}

func webhooksList(a *app, _ *flag.FlagSet) action {
	return a.asks("", func(ctx context.Context, c *client.Client, _ string) error {
		return show(a.table("ID", "URL", "EVENTS", "STATE"), c.Webhooks(ctx), 0, func(h client.Webhook) []string {
			state := "enabled"
			if !h.Enabled {
				state = strings.TrimSpace("disabled " + text(h.DisabledReason))
			} else if h.Paused {
				state = "paused"
			}
			return []string{h.ID, h.URL, strings.Join(h.Events, ","), state}
		})
	})
}

func webhooksUpdate(a *app, fs *flag.FlagSet) action {
	address := fs.String("url", "", "new `address`")
	types := fs.String("events", "", "comma-separated `list` of types")
	description := fs.String("description", "", "a `note` for yourself; an empty value removes it")
	enabled := fs.Bool("enabled", true, "--enabled=false stops sending")
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		var in client.WebhookUpdate
		fs.Visit(func(f *flag.Flag) {
			switch f.Name {
			case "url":
				in.URL = client.Set(*address)
			case "events":
				in.Events = listed(*types)
			case "description":
				in.Description = client.Set(*description)
			case "enabled":
				in.Enabled = client.Set(*enabled)
			}
		})
		h, err := c.UpdateWebhook(ctx, id, in)
		return a.answer(h, err, func(w io.Writer) {
			facts(w, "id", h.ID, "url", h.URL, "events", strings.Join(h.Events, ","), "enabled", strconv.FormatBool(h.Enabled))
		})
	})
}

func webhooksDelete(a *app, _ *flag.FlagSet) action {
	return a.each("deleted", func(ctx context.Context, c *client.Client, id string) error { return c.DeleteWebhook(ctx, id) })
}

func webhooksRoll(a *app, fs *flag.FlagSet) action {
	overlap := fs.String("overlap", "0s", "how `long` messages are also signed with the old secret: 1h, 7d")
	var length time.Duration
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		h, err := c.RollWebhookSecret(ctx, id, client.KeyRoll{OverlapSeconds: new(int64(length / time.Second))})
		if err != nil {
			return err
		}
		return a.showSecret(h)
	}, func() (err error) {
		// asks runs this check first, so an invalid --overlap is rejected before a request is sent.
		length, err = overlapOf(*overlap)
		return err
	})
}

func webhooksTest(a *app, _ *flag.FlagSet) action {
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		d, err := c.TestWebhook(ctx, id)
		return a.answer(d, err, func(w io.Writer) { fmt.Fprintln(w, clean(d.ID)) })
	})
}

func webhooksDeliveries(a *app, fs *flag.FlagSet) action {
	limit := fs.Int("limit", 20, "show at most this `number` of deliveries")
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		t := a.table("ID", "EVENT", "TYPE", "STATUS", "TRIES", "LAST")
		return show(t, c.Deliveries(ctx, id), *limit, func(d client.Delivery) []string {
			last := ""
			if n := len(d.Attempts); n > 0 {
				last = text(d.Attempts[n-1].Error)
				if s := d.Attempts[n-1].Status; last == "" && s != nil {
					last = strconv.Itoa(*s)
				}
			}
			return []string{d.ID, d.Event.ID, d.Event.Type, d.Status, strconv.Itoa(len(d.Attempts)), last}
		})
	})
}

func webhooksRetry(a *app, _ *flag.FlagSet) action {
	return func(ctx context.Context, args []string) error {
		if len(args) != 2 {
			return usagef("give the ID of a webhook and the ID of a delivery")
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		d, err := c.RetryDelivery(ctx, args[0], args[1])
		return a.answer(d, err, func(w io.Writer) { fmt.Fprintln(w, clean(d.Status)) })
	}
}

func webhooksReplay(a *app, fs *flag.FlagSet) action {
	from := fs.String("from", "", "`when` the range starts: "+pasts)
	to := fs.String("to", "", "`when` the range ends: "+pasts+"; default is now")
	return a.asks("ID", func(ctx context.Context, c *client.Client, id string) error {
		_, err := c.ReplayWebhook(ctx, id, client.WebhookReplay{From: past(*from, a.env.Now()), To: past(cmp.Or(*to, "0s"), a.env.Now())})
		return err
	}, func() error {
		if *from == "" {
			return usagef("needs --from")
		}
		return nil
	})
}

// maxMessage is more than any event needs, in bytes.
const maxMessage = 8 << 20

// webhooksVerify checks a message as a receiver does, with the clients' own function. The secret is
// never an argument: other users of the machine can read a process's arguments.
func webhooksVerify(a *app, fs *flag.FlagSet) action {
	id := fs.String("id", "", "`value` of the webhook-id header")
	stamp := fs.String("timestamp", "", "`value` of the webhook-timestamp header")
	signature := fs.String("signature", "", "`value` of the webhook-signature header")
	headers := fs.String("headers", "", "`file` with the request's headers, one \"name: value\" per line")
	secret := fs.String("secret-file", "", "`file` with one or more secrets; default is the secret in LINKREEL_WEBHOOK_SECRET")
	return func(_ context.Context, args []string) error {
		if len(args) != 1 {
			return usagef("give the FILE that contains the message body, or - for standard input")
		}
		if *headers == "" && (*id == "" || *stamp == "" || *signature == "") {
			return usagef("needs --headers, or --id, --timestamp and --signature")
		}
		secrets := strings.Fields(a.env.Getenv("LINKREEL_WEBHOOK_SECRET"))
		if *secret != "" {
			b, err := os.ReadFile(*secret)
			if err != nil {
				return err
			}
			secrets = strings.Fields(string(b))
		}
		if len(secrets) == 0 {
			return usagef("needs the webhook's secret, whsec_…, in LINKREEL_WEBHOOK_SECRET or in --secret-file")
		}
		header, err := headersFrom(*headers)
		if err != nil {
			return err
		}
		for name, value := range map[string]string{"webhook-id": *id, "webhook-timestamp": *stamp, "webhook-signature": *signature} {
			if value != "" {
				header.Set(name, value)
			}
		}
		body, err := a.readMessage(args[0])
		if err != nil {
			return err
		}
		if err := client.VerifyWebhook(secrets[0], header, body, secrets[1:]...); err != nil {
			var why *client.WebhookError
			if errors.As(err, &why) {
				return fmt.Errorf("%w (reason: %s)", err, why.Reason)
			}
			return err
		}
		return a.print(map[string]any{"id": header.Get("webhook-id"), "verified": true}, func(w io.Writer) {
			fmt.Fprintln(w, "verified", clean(header.Get("webhook-id")))
		})
	}
}

// headersFrom reads a request's headers from a file. A first line with the method and the path is
// ignored, as is everything after an empty line. If there is no file, it returns no headers.
func headersFrom(file string) (http.Header, error) {
	header := http.Header{}
	if file == "" {
		return header, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		if strings.TrimSpace(line) == "" {
			break
		}
		if name, value, ok := strings.Cut(line, ":"); ok {
			header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return header, nil
}

// readMessage reads a message's body. It is bounded, because a receiver may pass on whatever a
// stranger sends.
func (a *app) readMessage(file string) ([]byte, error) {
	in, _, err := a.open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // opened only for reading
	body, err := io.ReadAll(io.LimitReader(in, maxMessage+1))
	if err == nil && len(body) > maxMessage {
		err = usagef("the body is larger than %d MiB, so it is not a message from Linkreel", maxMessage>>20)
	}
	return body, err
}

// webhooksListen sends webhooks to a receiver on this machine, as the deployment would. It follows
// the feed with long polling and forwards each event as a signed message, so a developer can test a
// receiver that does not have a public address.
func webhooksListen(a *app, fs *flag.FlagSet) action {
	forward := fs.String("forward", "", "`address` of your receiver, such as http://localhost:3000/hooks")
	types := fs.String("events", "", "comma-separated `list` of types; default is all")
	after := fs.String("after", "", "start after the event with this `id`; by default, only new events are sent")
	secret := fs.String("secret", "", "sign with this `secret`, whsec_…; default is a new one for each run")
	return func(ctx context.Context, args []string) error {
		if err := none(args); err != nil {
			return err
		}
		u, err := url.Parse(*forward)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return usagef("--forward needs an http:// or https:// address")
		}
		key, err := signingKey(*secret)
		if err != nil {
			return err
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		if *secret == "" {
			a.note("Messages are signed with the secret %s", secretPrefix+base64.StdEncoding.EncodeToString(key))
		}
		a.note("Waiting for events. Press Ctrl-C to stop.")
		q := client.ListEventsQuery{Type: listed(*types), After: given(*after)}
		_, err = c.FollowEvents(ctx, q, func(e client.Event) error {
			status := a.forward(ctx, u, key, e)
			if ctx.Err() != nil {
				return ctx.Err() // the user stopped the command; the receiver did not fail
			}
			return a.print(map[string]any{"id": e.ID, "type": e.Type, "object": e.Object, "answer": status}, func(w io.Writer) {
				fmt.Fprintf(w, "%s  %-20s %-28s → %s\n", a.env.Now().UTC().Format(time.TimeOnly), clean(e.Type), clean(e.Object), clean(status))
			})
		})
		return followed(ctx, err)
	}
}

// secretPrefix is the prefix of every webhook secret. It is followed by the key in base64.
const secretPrefix = "whsec_"

// signingKey decodes a secret, or generates a key if secret is empty.
func signingKey(secret string) ([]byte, error) {
	if secret == "" {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		return key, nil
	}
	text, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) == 0 {
		return nil, usagef("--secret must be %s followed by base64", secretPrefix)
	}
	return key, nil
}

// forward sends one event and returns the receiver's response for display. It does not retry: a
// developer testing a receiver wants to see every failure.
func (a *app) forward(ctx context.Context, address *url.URL, key []byte, e client.Event) string {
	body, err := json.Marshal(struct {
		Type      string          `json:"type"`
		Timestamp string          `json:"timestamp"`
		Data      json.RawMessage `json:"data"`
	}{e.Type, e.CreatedAt.Time().Format("2006-01-02T15:04:05.000Z"), e.Data})
	if err != nil {
		return err.Error()
	}
	stamp := strconv.FormatInt(a.env.Now().Unix(), 10)
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", e.ID, stamp, body) // never fails
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address.String(), bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Linkreel-Webhooks/1")
	req.Header.Set("webhook-id", e.ID)
	req.Header.Set("webhook-timestamp", stamp)
	req.Header.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return unanswered(address, err) + "; the message is not sent again"
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // drain the body, so the connection can be reused
	return res.Status
}

// unanswered explains in plain English why a receiver did not respond.
func unanswered(address *url.URL, err error) string {
	var (
		dial *net.OpError
		name *net.DNSError
		call *url.Error
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within 15 seconds"
	case errors.As(err, &name):
		return "cannot find the host " + address.Hostname()
	case errors.As(err, &dial) && dial.Op == "dial":
		return "nothing is listening on " + address.Host
	case errors.As(err, &call):
		return call.Err.Error() // omit the method and the URL, which the user already knows
	}
	return err.Error()
}
