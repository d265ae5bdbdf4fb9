package peer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/peer/peertest"
)

type word struct{ Text string }

// open serves the test routes and returns their base URL.
func open(t *testing.T, tokens map[peer.Service]string) string {
	t.Helper()
	api := httpapi.New(httpapi.Options{Name: "test", Peers: true})
	door := peer.NewDoor(api, tokens)
	for _, path := range []string{"/internal/v1/keys/verify", "/internal/v1/rights", "/internal/v1/accounts/erasure", "/internal/v1/takedowns/take", "/internal/v1/sign-in/who"} {
		peer.Answer(door, path, func(ctx context.Context, in word) (word, error) {
			switch in.Text {
			case "refuse":
				return word{}, &apierr.Error{Code: apierr.InsufficientScope, RequiredRole: "owner", Message: "Ask an owner."}
			case "busy":
				return word{}, &apierr.Error{Code: apierr.Unavailable, RetryAfter: 7 * time.Second, Message: "Busy."}
			case "break":
				return word{}, errors.New("a bug")
			case "trace":
				return word{trace.SpanContextFromContext(ctx).TraceID().String()}, nil
			}
			return word{in.Text + "!"}, nil
		})
	}
	peer.Stream(door, "/internal/v1/accounts/export", func(_ context.Context, in word, w io.Writer) error {
		if _, err := io.WriteString(w, strings.Repeat("line\n", 50_000)); err != nil {
			return err
		}
		if in.Text == "break" {
			return errors.New("database went away")
		}
		return nil
	})
	return peertest.Serve(t, api.Handler())
}

func ask(t *testing.T, url, token, path, text string) (string, error) {
	t.Helper()
	c := peer.NewClient(url+"/", token, 5*time.Second)
	defer c.Close()
	var out word
	err := c.Call(t.Context(), path, word{text}, &out)
	return out.Text, err
}

const verify = "/internal/v1/keys/verify"

func TestEachServiceAsksItsOwnRoutesAndNoOther(t *testing.T) {
	t.Parallel()
	tokens := map[peer.Service]string{peer.Auth: "auth-token", peer.Links: "links-token", peer.Videos: "videos-token", peer.Events: "events-token", peer.Console: "console-token"}
	url := open(t, tokens)
	for path, allowed := range map[string][]peer.Service{
		verify:                          {peer.Links, peer.Videos, peer.Events},
		"/internal/v1/rights":           {peer.Videos},
		"/internal/v1/accounts/erasure": {peer.Auth},
		"/internal/v1/takedowns/take":   {peer.Auth},
		"/internal/v1/sign-in/who":      {peer.Console},
	} {
		may := map[peer.Service]bool{}
		for _, s := range allowed {
			may[s] = true
		}
		for service, token := range tokens {
			if got, err := ask(t, url, token, path, "hi"); (err == nil) != may[service] || may[service] && got != "hi!" {
				t.Errorf("%s calls %s: got %q, %v, want allowed = %v", service, path, got, err, may[service])
			}
			if status := post(t, url+path, token); may[service] != (status == http.StatusOK) || !may[service] && status != http.StatusForbidden {
				t.Errorf("%s calls %s: status %d, want allowed = %v", service, path, status, may[service])
			}
		}
		for _, wrong := range []string{"", "guess", "links-token,videos-token"} {
			if status := post(t, url+path, wrong); status != http.StatusUnauthorized {
				t.Errorf("call to %[2]s with the token %[1]q: status %[3]d, want 401", wrong, path, status)
			}
		}
	}
}

func post(t *testing.T, url, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// A token is rotated in three steps. At each step, some processes have already restarted with the
// new setting, and every pair of processes must accept each other's calls.
func TestATokenIsReplacedWithoutARefusedCall(t *testing.T) {
	t.Parallel()
	steps := []string{"old", "old,new", "new, old", "new"}
	for i := range steps {
		for _, j := range []int{i - 1, i, i + 1} {
			if j < 0 || j == len(steps) {
				continue
			}
			url := open(t, map[peer.Service]string{peer.Links: steps[i]})
			if _, err := ask(t, url, steps[j], verify, "hi"); err != nil {
				t.Errorf("auth with %q and links with %q: got %v, want no error", steps[i], steps[j], err)
			}
		}
	}
	if _, err := ask(t, open(t, map[peer.Service]string{peer.Links: "new"}), "old", verify, "hi"); err == nil {
		t.Error("call with the old token succeeded, want an error")
	}
	if status := post(t, open(t, map[peer.Service]string{peer.Links: ""})+verify, ""); status != http.StatusUnauthorized {
		t.Errorf("call without a token: status %d, want 401", status)
	}
}

func TestARefusalComesBackAsItWasGiven(t *testing.T) {
	t.Parallel()
	url := open(t, map[peer.Service]string{peer.Links: "token"})
	var refused *apierr.Error
	if _, err := ask(t, url, "token", verify, "refuse"); !errors.As(err, &refused) || refused.Code != apierr.InsufficientScope || refused.RequiredRole != "owner" || refused.Message != "Ask an owner." {
		t.Errorf("error from the handler: got %v, want INSUFFICIENT_SCOPE with its role and message", err)
	}
	if _, err := ask(t, url, "token", verify, "busy"); !errors.As(err, &refused) || refused.Code != apierr.Unavailable || refused.RetryAfter != 7*time.Second {
		t.Errorf("busy service: got %v, want UNAVAILABLE with Retry-After 7", err)
	}
	if _, err := ask(t, url, "token", verify, "break"); apierr.CodeOf(err) != apierr.Unavailable {
		t.Errorf("internal error from the service: got %v, want UNAVAILABLE", err)
	}
}

// Only a response from the same call's handler counts as an error from the service.
func TestNoOtherAnswerPassesForOne(t *testing.T) {
	t.Parallel()
	fixed := func(status int, header map[string]string, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for k, v := range header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	url := open(t, map[peer.Service]string{peer.Links: "token"})
	for name, at := range map[string]struct{ url, token, path string }{
		"wrong token":                {url, "guess", verify},
		"another service's route":    {url, "token", "/internal/v1/accounts/erasure"},
		"missing route":              {url, "token", "/internal/v1/nothing"},
		"closed port":                {"http://127.0.0.1:1", "token", verify},
		"empty object":               {fixed(200, nil, `{}`), "token", verify},
		"response to another call":   {fixed(200, map[string]string{"Linkreel-Call": "abc"}, `{"Text":"hi!"}`), "token", verify},
		"HTML page":                  {fixed(502, nil, `<html>`), "token", verify},
		"error from another program": {fixed(404, nil, `{"error":{"code":"NOT_FOUND"}}`), "token", verify},
		"redirect to another URL":    {fixed(307, map[string]string{"Location": url + verify}, ``), "token", verify},
	} {
		if got, err := ask(t, at.url, at.token, at.path, "hi"); apierr.CodeOf(err) != apierr.Unavailable {
			t.Errorf("%s: got %q, %v, want UNAVAILABLE", name, got, err)
		}
	}
}

func TestALongAnswerArrivesWholeOrFails(t *testing.T) {
	t.Parallel()
	c := peer.NewClient(open(t, map[peer.Service]string{peer.Auth: "token"}), "token", 5*time.Second)
	defer c.Close()
	for _, text := range []string{"", "break"} {
		var got bytes.Buffer
		err := c.Copy(t.Context(), "/internal/v1/accounts/export", word{text}, &got)
		if (err != nil) != (text == "break") || err == nil && got.Len() != 250_000 {
			t.Errorf("Copy for %q: %d bytes, error %v; want all bytes, or an error for a broken stream", text, got.Len(), err)
		}
	}
}

func TestTheTraceOfTheCallerContinues(t *testing.T) { // not parallel because the whole process shares the propagator
	otel.SetTextMapPropagator(propagation.TraceContext{})
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	trc, _ := trace.TraceIDFromHex(id)
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trc, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled}))
	c := peer.NewClient(open(t, map[peer.Service]string{peer.Links: "token"}), "token", 5*time.Second)
	defer c.Close()
	var got word
	if err := c.Call(ctx, verify, word{"trace"}, &got); err != nil || got.Text != id {
		t.Errorf("handler's trace = %q, %v; want the caller's %s", got.Text, err, id)
	}
}
