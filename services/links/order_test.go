package links_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/links"
)

var update = flag.Bool("update", false, "update the files in testdata")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s differs (-want +got). If the change is intended, run the test with -update.\n%s", file, diff)
	}
}

// blocking returns a service option that enables a list of blocked hosts, and a function that
// replaces the list.
func blocking(t *testing.T) (edit func(*links.Config), block func(hosts ...string)) {
	t.Helper()
	list := filepath.Join(t.TempDir(), "blocked")
	block = func(hosts ...string) {
		t.Helper()
		if err := os.WriteFile(list, []byte(strings.Join(hosts, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	block()
	return func(cfg *links.Config) { cfg.BlockedDestinations = list }, block
}

// state is a possible state of a link.
type state struct {
	name string
	set  map[string]any // the fields that put a link into this state, if any
}

// inOrder lists the states by precedence, highest first.
func inOrder(now time.Time) []state {
	desktops := []any{rule("desktops", "https://rule.example/", map[string]any{"device": []any{"desktop"}})}
	return []state{
		{name: "unknown path"},
		{name: "suspended"},
		{name: "taken down"},
		{"scheduled", map[string]any{"startsAt": now.Add(time.Hour).UnixMilli()}},
		{"expired", map[string]any{"expiresAt": now.Add(-time.Hour).UnixMilli()}},
		{"exhausted", map[string]any{"maxClicks": 1}},
		{"password", map[string]any{"password": "secret"}},
		{"rule", map[string]any{"rules": desktops}},
		{"blocked", map[string]any{"url": "https://blocked.example/"}},
		{"expiry page", map[string]any{"expiredUrl": "https://over.example/"}},
		{"blocked expiry page", map[string]any{"expiredUrl": "https://blocked.example/over"}},
	}
}

// stated is a link in one or two states.
type stated struct {
	names     []string
	slug, id  string
	refused   string // reason why a link cannot be in both states
	pathAfter string
}

func (s *stated) has(name string) bool { return slices.Contains(s.names, name) }

// intoStates creates a link in the given states. The caller sets the states that only an operator
// can set.
func (r *replica) intoStates(key string, states ...state) *stated {
	r.t.Helper()
	s, patch := &stated{}, map[string]any{}
	for _, one := range states {
		s.names = append(s.names, one.name)
		maps.Copy(patch, one.set)
	}
	s.slug = strings.ReplaceAll(strings.Join(s.names, "-"), " ", "")
	if s.has("unknown path") {
		s.pathAfter = "/deeper"
	}
	if s.has("rule") && s.has("blocked") { // the blocked destination belongs to the rule, not to the link
		patch["rules"] = []any{rule("desktops", "https://blocked.example/", map[string]any{"device": []any{"desktop"}})}
	}
	s.id = r.create(key, map[string]any{"url": "https://example.com/", "slug": s.slug, "maxClicks": patch["maxClicks"]}).str("id")
	if s.has("exhausted") && r.visits("/"+s.slug, 1) != 1 {
		r.t.Fatal("visit that reaches the click limit: not redirected, want a redirect")
	}
	if a := r.api(key, "PATCH", "/api/v1/links/"+s.id, patch); a.status != 200 {
		s.refused = a.json["error"].(map[string]any)["details"].([]any)[0].(map[string]any)["message"].(string)
	}
	return s
}

// shows reports whether the second of two states can affect a response even though the first takes
// precedence.
func (s *stated) shows(answer int) bool {
	over := s.names[0] == "expired" || s.names[0] == "exhausted"
	return answer >= 2 && s.has("password") || // once the correct password is given, the next state determines the response
		over && s.has("expiry page") || // visitors to an expired link are redirected to this page
		s.names[0] == "rule" && s.has("blocked") // the blocked destination belongs to the rule
}

var heading = regexp.MustCompile(`<h1>([^<]*)</h1>`)

// told summarizes the response to a visitor: the status, followed by the destination or the page's
// heading.
func told(a answer) string {
	what := a.header.Get("Location")
	if m := heading.FindStringSubmatch(a.text); what == "" && m != nil {
		what = m[1]
	}
	return strings.TrimSpace(fmt.Sprint(a.status, " ", what))
}

// answersOf returns the responses to a visit, to a request for the preview page, to the password and
// to explain.
func (r *replica) answersOf(key string, s *stated) []string {
	r.t.Helper()
	at := "/" + s.slug
	out := []string{
		"visit    " + told(r.visit(at+s.pathAfter, "User-Agent", windows)),
		"preview  " + told(r.visit(at+"+"+s.pathAfter, "User-Agent", windows)),
		"password " + told(r.give(at+s.pathAfter, "secret")),
	}
	e := r.api(key, "GET", "/api/v1/links/"+s.id+"/explain?device=desktop&path="+s.pathAfter, nil)
	if s.has("suspended") { // the API rejects the keys of a suspended account
		return out
	}
	return append(out, strings.TrimSpace(fmt.Sprint("explain  ", e.json["status"], " ", e.str("location")))+": "+e.str("why"))
}

// If a link is in two states, the one with the higher precedence determines the response to a
// visit, the preview page and explain. This test checks that over HTTP.
func TestTheEarlierOfTwoStatesDecides(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	edit, block := blocking(t)
	r := c.replica(t, edit)
	key, suspended := c.keys.Key(t, "acc_a", identity.Creator), c.keys.Key(t, "acc_s", identity.Creator)
	states, all := inOrder(c.now()), []*stated{}
	keyOf := func(of ...state) string {
		if slices.ContainsFunc(of, func(s state) bool { return s.name == "suspended" }) {
			return suspended
		}
		return key
	}
	for i, earlier := range states {
		all = append(all, r.intoStates(keyOf(earlier), earlier))
		for _, later := range states[i+1:] {
			all = append(all, r.intoStates(keyOf(earlier, later), earlier, later))
		}
	}
	for i, s := range all {
		if s.has("taken down") {
			order := tenant.Order{ID: fmt.Sprint("tkd_", i), Target: tenant.Target{ID: s.id}, Reason: "r", At: c.now()}
			if _, err := r.holder().TakeDown(t.Context(), order); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.holder().SetState(t.Context(), "acc_s", tenant.Standing{State: tenant.Suspended, Version: 2}); err != nil {
		t.Fatal(err)
	}
	block("blocked.example")
	eventually(t, "the list of blocked hosts is loaded", func() bool { return r.visit("/blocked").status == 410 })

	var table strings.Builder
	alone := map[string][]string{}
	for _, s := range all {
		fmt.Fprintf(&table, "%s\n", strings.Join(s.names, " + "))
		if s.refused != "" {
			fmt.Fprintf(&table, "\trefused: %s\n\n", s.refused)
			continue
		}
		got := r.answersOf(keyOf(), s)
		if len(s.names) == 1 {
			alone[s.names[0]] = got
		}
		fmt.Fprintf(&table, "\t%s\n\n", strings.Join(got, "\n\t"))
		earlier := alone[s.names[0]]
		for i, line := range got {
			if !s.shows(i) && line != earlier[i] {
				t.Errorf("%s: %q, want %q, the same as for the first state alone", strings.Join(s.names, " and "), line, earlier[i])
			}
		}
	}
	golden(t, "order.txt", table.String())
}
