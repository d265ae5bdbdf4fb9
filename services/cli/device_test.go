package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// deviceAPI serves the API calls for a browser login.
func deviceAPI(t *testing.T, verification string, answers ...int) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reply := func(status int, v any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(v)
		}
		switch r.URL.Path {
		case "/api/v1/device-codes":
			if strings.TrimSpace(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer")) != "" {
				t.Errorf("the request contains a stored key: %q", r.Header.Get("Authorization"))
			}
			reply(201, map[string]any{"deviceCode": "lr_link_x", "userCode": "k7mp-3wxd", "verificationUrl": verification, "expiresAt": time.Now().Add(time.Hour).UnixMilli(), "interval": 3})
		case "/api/v1/device-codes/token":
			status := answers[0]
			answers = answers[1:]
			if status == 201 {
				reply(201, map[string]any{"id": "key_1", "key": "good"})
				return
			}
			reply(status, map[string]any{"error": map[string]any{"code": map[int]string{409: "AUTHORIZATION_PENDING", 403: "FORBIDDEN"}[status], "message": "Not yet."}})
		case "/api/v1/account":
			reply(200, map[string]any{"id": "acc_1", "name": "Ada", "plan": "business"})
		default:
			reply(404, map[string]any{"error": map[string]any{"code": "NOT_FOUND", "message": "no"}})
		}
	}))
	t.Cleanup(srv.Close)
	return srv
}

func TestLoginByBrowserComesBackWithAKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		verification string
		answers      []int
		code         int
		stored       bool
	}{
		"approved after a while": {"https://go.example.com/app/device?code=k7mp-3wxd", []int{409, 409, 201}, 0, true},
		"denied":                 {"https://go.example.com/app/device?code=k7mp-3wxd", []int{409, 403}, ExitAuth, false},
		"not a web address":      {"file:///etc/passwd", nil, ExitFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var out, errs bytes.Buffer
			var opened []string
			srv := deviceAPI(t, c.verification, c.answers...)
			code := Run(t.Context(), []string{"login", "--browser", "--base-url", srv.URL}, Env{
				In: strings.NewReader(""), Out: &out, Err: &errs, ConfigDir: dir, Now: time.Now, Getenv: func(string) string { return "" },
				Sleep: func(context.Context, time.Duration) error { return nil },
				Open:  func(_ context.Context, address string) error { opened = append(opened, address); return nil },
			})
			if code != c.code {
				t.Fatalf("exit code %d, want %d: %s", code, c.code, errs.String())
			}
			text, err := os.ReadFile(filepath.Join(dir, "linkreel", "credentials.json"))
			if (err == nil) != c.stored || c.stored && !strings.Contains(string(text), `"good"`) {
				t.Errorf("the stored login is %s (error %v), want a key only after approval", text, err)
			}
			if web := strings.HasPrefix(c.verification, "https"); web != (len(opened) == 1) || web && !strings.Contains(errs.String(), "k7mp-3wxd") {
				t.Errorf("the browser opened %v and the command printed %s, want a web address and the code, or nothing opened", opened, errs.String())
			}
		})
	}
}

func TestAdminMakesTheFirstOwnersLink(t *testing.T) {
	t.Parallel()
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]string
		_ = json.NewDecoder(r.Body).Decode(&body)
		asked = append(asked, r.Method+" "+r.URL.Path+" "+body["name"]+" "+body["role"]+body["plan"]+body["memberId"])
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(201)
		_, _ = w.Write([]byte(`{"id":"acc_9","url":"https://go.example.com/app/sign-in?link=x","expiresAt":1790000000000,"memberId":"mem_1"}`))
	}))
	t.Cleanup(srv.Close)
	run := func(args ...string) (string, int) {
		var out bytes.Buffer
		code := Run(t.Context(), append(args, "--admin-url", srv.URL, "--admin-token", "t"), Env{In: strings.NewReader(""), Out: &out, Err: &bytes.Buffer{}, Now: time.Now, Getenv: func(string) string { return "" }})
		return out.String(), code
	}
	if out, code := run("admin", "accounts", "create", "Ada & Co", "--plan", "business"); code != 0 || out != "acc_9\n" {
		t.Errorf("create returned exit code %d and %q, want 0 and acc_9", code, out)
	}
	for _, args := range [][]string{{"admin", "sign-in-link", "acc_9"}, {"admin", "sign-in-link", "acc_9", "--member", "mem_1"}} {
		if out, code := run(args...); code != 0 || out != "https://go.example.com/app/sign-in?link=x\n" {
			t.Errorf("%v returned exit code %d and %q, want 0 and the link", args, code, out)
		}
	}
	want := "POST /admin/v1/accounts Ada & Co business|POST /admin/v1/accounts/acc_9/sign-in-links Owner owner|POST /admin/v1/accounts/acc_9/sign-in-links  mem_1"
	if got := strings.Join(asked, "|"); got != want {
		t.Errorf("the requests are %s\nwant             %s", got, want)
	}
}
