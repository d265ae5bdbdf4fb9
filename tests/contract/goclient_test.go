package contract_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apispec"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/tests/contract"
)

// documented is the contract's description of an operation.
type documented struct {
	ID         string `json:"operationId"`
	Parameters []parameter
	Body       *struct{ Content map[string]any } `json:"requestBody"`
}

type parameter struct {
	Ref      string `json:"$ref"`
	Name, In string
}

// Each operation must have a method with the same name. When the test calls the method with all its
// parameters, the client must send the documented request. Each list operation must also have a
// method that iterates over its pages.
func TestEveryOperationHasAMethodOfTheGoClient(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Parameters map[string]parameter }
	}
	if err := json.Unmarshal(apispec.Load().JSON(), &doc); err != nil {
		t.Fatal(err)
	}
	var got *http.Request
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body) // an empty body fails the check below
		_, _ = io.WriteString(w, "{}")
	}))
	defer srv.Close()
	c, err := client.New(client.Config{BaseURL: srv.URL, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	o, err := client.NewOperator(client.Config{BaseURL: srv.URL, Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for path, item := range doc.Paths {
		var shared []parameter
		_ = json.Unmarshal(item["parameters"], &shared) // most paths do not have shared parameters
		for _, method := range []string{"get", "put", "post", "patch", "delete"} {
			var op documented
			if item[method] == nil {
				continue
			}
			if err := json.Unmarshal(item[method], &op); err != nil {
				t.Fatal(err)
			}
			n++
			of := reflect.ValueOf(c)
			if strings.HasPrefix(path, "/admin/") {
				of = reflect.ValueOf(o)
			}
			for i, p := range append(op.Parameters, shared...) {
				if p.Ref != "" {
					p = doc.Components.Parameters[p.Ref[strings.LastIndex(p.Ref, "/")+1:]]
				}
				if i < len(op.Parameters) {
					op.Parameters[i] = p
				}
			}
			want := strings.NewReplacer("{id}", "id%2F1", "{lang}", "id%2F2", "{delivery}", "id%2F2").Replace(path)
			got, body = nil, nil
			if !call(t, of, op.ID) {
				t.Errorf("the client has no %s method", op.ID)
				continue
			}
			if got == nil || got.Method != strings.ToUpper(method) || got.URL.EscapedPath() != want {
				t.Errorf("%s sent %+v, want %s %s", op.ID, got, method, want)
				continue
			}
			for _, p := range op.Parameters {
				if p.In == "query" && !got.URL.Query().Has(p.Name) {
					t.Errorf("%s did not send the %s parameter: %s", op.ID, p.Name, got.URL)
				}
			}
			if op.Body != nil && (len(body) < 2 || op.Body.Content[got.Header.Get("Content-Type")] == nil) {
				t.Errorf("%s sent the body %q as %s, want a documented type", op.ID, body, got.Header.Get("Content-Type"))
			}
			if all := strings.Replace(strings.Replace(op.ID, "list", "", 1), "List", "", 1); all != op.ID {
				if got = nil; !call(t, of, all) || got == nil || got.URL.EscapedPath() != want {
					t.Errorf("%s has no method that iterates over its pages, or the method sent %+v", op.ID, got)
				}
			}
		}
	}
	if n < 70 {
		t.Errorf("the contract has only %d operations, want at least 70", n)
	}
}

// call calls an operation's method with a value for every argument. If the method returns an
// iterator, it reads the first record.
func call(t *testing.T, of reflect.Value, name string) bool {
	t.Helper()
	i := slices.IndexFunc(slices.Collect(of.Type().Methods()), func(m reflect.Method) bool { return strings.EqualFold(m.Name, name) })
	if i < 0 {
		return false
	}
	m := of.Method(i)
	args, ids := []reflect.Value{reflect.ValueOf(t.Context())}, 0
	for k := 1; k < m.Type().NumIn()-1; k++ { // the last arguments are options
		v := reflect.New(m.Type().In(k)).Elem()
		if v.Kind() == reflect.String {
			ids++
			v.SetString(fmt.Sprintf("id/%d", ids))
		} else {
			fillIn(v)
		}
		args = append(args, v)
	}
	out := m.Call(args)
	if err, failed := out[len(out)-1].Interface().(error); failed {
		t.Errorf("%s: %v", name, err)
	}
	if closer, ok := out[0].Interface().(io.Closer); ok {
		_ = closer.Close()
	}
	if out[0].Kind() == reflect.Func {
		for range out[0].Seq2() {
			break
		}
	}
	return true
}

// fillIn sets a value and all its fields to values that the client sends.
func fillIn(v reflect.Value) {
	switch v.Interface().(type) {
	case client.Time:
		v.Set(reflect.ValueOf(client.At(time.Now())))
		return
	case []byte:
		v.SetBytes([]byte("WEBVTT"))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("a")
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillIn(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillIn(v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fillIn(v.Field(i))
			}
		}
	}
}

// Over a bad network, nothing should be created twice or lost, and every error should have a type.
func TestGoClientBehindAHostileProxy(t *testing.T) {
	t.Parallel()
	secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", []string{"links:read", "links:write", "events:read"})
	proxy := &contract.Hostile{Target: running.BaseURL, Seed: 32}
	srv := httptest.NewServer(proxy)
	defer srv.Close()
	soon := func(ctx context.Context, d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(d, 20*time.Millisecond)):
			return nil
		}
	}
	cfg := client.Config{BaseURL: srv.URL, Key: secret, Attempts: 20, Sleep: soon, Timeout: 30 * time.Second}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %T %v", what, err, err)
		}
	}
	ids := map[string]string{} // by title
	for i := range 25 {
		l, err := c.CreateLink(ctx, client.LinkCreate{URL: "https://example.com/", Title: fmt.Sprint("one ", i)})
		must("create", err)
		ids[fmt.Sprint("one ", i)] = l.ID
	}
	items := make([]client.LinkCreate, 230)
	for i := range items {
		items[i] = client.LinkCreate{URL: "https://example.com/", Title: fmt.Sprint("bulk ", i)}
	}
	results, err := c.CreateLinks(ctx, items)
	must("bulk create", err)
	for i, r := range results {
		if r.Status != http.StatusCreated {
			t.Fatalf("item %d is %+v, want status 201", i, r)
		}
		ids[items[i].Title] = r.Data.ID
	}
	for title, id := range ids {
		if strings.HasPrefix(title, "one") {
			_, err := c.UpdateLink(ctx, id, client.LinkUpdate{ExternalID: client.Set(title)})
			must("update", err)
		}
	}
	all, err := client.All(c.Links(ctx, client.ListLinksQuery{}))
	must("list", err)
	for _, l := range all {
		if ids[l.Title] != l.ID {
			t.Errorf("link %q has the ID %s, but the create returned %s", l.Title, l.ID, ids[l.Title])
		}
	}
	if len(all) != len(ids) {
		t.Errorf("the account has %d links, want %d", len(all), len(ids))
	}
	made, enough := map[string]int{}, errors.New("enough")
	_, err = c.FollowEvents(ctx, client.ListEventsQuery{Type: []string{"link.created"}, After: new("")}, func(e client.Event) error {
		if made[e.Object]++; len(made) == len(ids) {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("FollowEvents returned %v, want the handler's error", err)
	}
	for id, n := range made {
		if n != 1 {
			t.Errorf("the handler got %s %d times, want once", id, n)
		}
	}
	var bulk []string
	for title, id := range ids {
		if strings.HasPrefix(title, "one") {
			must("delete", c.DeleteLink(ctx, id))
		} else {
			bulk = append(bulk, id)
		}
	}
	gone, err := c.DeleteLinks(ctx, bulk)
	must("bulk delete", err)
	for _, r := range gone {
		if r.Status != http.StatusOK {
			t.Errorf("deleting %s returned %+v, want 200", r.ID, r)
		}
	}
	if left, err := client.All(c.Links(ctx, client.ListLinksQuery{})); err != nil || len(left) > 0 {
		t.Errorf("%d links remain, want 0; the error is %v", len(left), err)
	}
	if len(proxy.Deeds) < 9 {
		t.Errorf("the proxy injected only %v, want at least 9 kinds of failures", proxy.Deeds)
	}
	everyErrorHasAType(t, cfg)
}

// everyErrorHasAType makes calls without retries, so each injected failure returns an error.
func everyErrorHasAType(t *testing.T, cfg client.Config) {
	t.Helper()
	cfg.Attempts = 1
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for i := range 60 {
		var errs [3]error
		_, errs[0] = c.ListLinks(t.Context(), client.ListLinksQuery{Slug: fmt.Sprint("s", i)})
		_, errs[1] = c.GetLink(t.Context(), fmt.Sprint("lnk_", i))
		errs[2] = c.DeleteLink(t.Context(), fmt.Sprint("lnk_", i))
		for _, err := range errs {
			var api *client.APIError
			if err == nil {
				continue
			}
			failed++
			if !errors.As(err, &api) && !client.IsConnection(err) {
				t.Errorf("the error is of type %T, want an API or connection error: %v", err, err)
			}
			var untyped *url.Error
			if errors.As(err, &untyped) || strings.Contains(err.Error(), cfg.Key) {
				t.Errorf("the error is an untyped %T or contains the key: %v", err, err)
			}
		}
	}
	if failed < 30 {
		t.Errorf("only %d calls failed, want at least 30", failed)
	}
}

// Over a bad network, the Go client's tour must not create anything twice or lose anything.
func TestTourOfTheGoClientBehindAHostileProxy(t *testing.T) {
	t.Parallel()
	secret, _ := key(t, &http.Client{Timeout: 30 * time.Second}, "business", []string{
		"links:read", "links:write", "videos:read", "videos:write", "events:read", "webhooks:read", "webhooks:write",
	})
	proxy := &contract.Hostile{Target: running.BaseURL, Seed: 9}
	srv := httptest.NewServer(proxy)
	defer srv.Close()
	film := filepath.Join(t.TempDir(), "clip.mp4")
	clip(t, film)
	cmd := exec.CommandContext(t.Context(), "go", "run", "./examples/tour", film)
	cmd.Dir, cmd.Env = "../../libs/clients/go", append(os.Environ(), "LINKREEL_BASE_URL="+srv.URL, "LINKREEL_API_KEY="+secret)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`(?m)^found http\S+$`, `(?m)^deleted: true$`, `(?m)^bulk: 990 created, 10 rejected$`, `(?m)^sent \d+ of \d+$`,
		`(?m)^plays at http\S+ webhook: video.ready$`, `(?m)^feed: each link once: true$`, `(?m)^cleared: 990$`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("the tour's output has no line that matches %s:\n%s", want, out)
		}
	}
}
