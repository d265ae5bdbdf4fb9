package links_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/firestore"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper/keepertest"
	"github.com/linkreel/linkreel/libs/tenant/wire"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// holder returns the client that auth uses to manage the replica's accounts.
func (r *replica) holder() *wire.Client {
	r.t.Helper()
	l, err := (&net.ListenConfig{}).Listen(r.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range r.service.Servers {
		if s.Name == "internal" {
			srv := httpapi.NewServer(s.Handler)
			go func() { _ = srv.Serve(l) }()
			r.t.Cleanup(func() { _ = srv.Shutdown() })
		}
	}
	client := wire.NewClient("http://"+l.Addr().String(), internalToken)
	r.t.Cleanup(client.Close)
	return client
}

var asJSON = []string{"Accept", "application/json"}

func TestASuspendedAccountsLinksAre410OnEveryReplica(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a, b := c.replica(t), c.replica(t, func(cfg *links.Config) { cfg.Flush = false; cfg.AbuseContact = "abuse@lrl.example" })
	key := c.keys.Key(t, "acc_a", identity.Creator)
	a.create(key, map[string]any{"url": "https://example.com/", "slug": "mine"})
	a.create(c.keys.Key(t, "acc_b", identity.Creator), map[string]any{"url": "https://example.com/", "slug": "theirs"})
	auth := a.holder()
	set := func(state tenant.State, version int64) {
		t.Helper()
		if err := auth.SetState(t.Context(), "acc_a", tenant.Standing{State: state, Version: version}); err != nil {
			t.Fatal(err)
		}
	}
	for version := int64(1); version < 40; version += 2 {
		if v := b.visit("/mine"); v.status != 302 {
			t.Fatalf("visit before the suspension: %v, want 302", v)
		}
		set(tenant.Suspended, version)
		if v := b.visit("/mine", asJSON...); v.status != 410 || v.code() != "ACCOUNT_SUSPENDED" {
			t.Fatalf("visit while suspended: %v, want 410 ACCOUNT_SUSPENDED", v)
		}
		if v := b.visit("/mine+"); v.status != 410 || !strings.Contains(v.text, `href="mailto:abuse@lrl.example"`) {
			t.Fatalf("preview page while suspended: %v, want 410 with the abuse address", v)
		}
		set(tenant.Active, version+1)
	}
	set(tenant.Suspended, 3) // a delayed call that carries an older decision
	if v := b.visit("/mine"); v.status != 302 {
		t.Errorf("visit after the delayed call: %v, want 302", v)
	}
	if v := b.visit("/theirs"); v.status != 302 {
		t.Errorf("visit to another account's link: %v, want 302", v)
	}
}

// A lift may arrive before its suspension.
func TestALateSuspensionIsIgnoredAfterItsLift(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a := c.replica(t)
	a.create(c.keys.Key(t, "acc_a", identity.Creator), map[string]any{"url": "https://example.com/", "slug": "mine"})
	auth := a.holder()
	for _, s := range []tenant.Standing{{State: tenant.Active, Version: 6}, {State: tenant.Suspended, Version: 5}} {
		if err := auth.SetState(t.Context(), "acc_a", s); err != nil {
			t.Fatal(err)
		}
	}
	if v := a.visit("/mine"); v.status != 302 {
		t.Errorf("visit after the late suspension: %v, want 302", v)
	}
}

func TestATakedownOutlivesItsLink(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	a, b := c.replica(t), c.replica(t, func(cfg *links.Config) { cfg.Flush = false })
	key := c.keys.Key(t, "acc_a", identity.Creator)
	body := map[string]any{"url": "https://example.com/", "slug": "Bad"}
	id := a.create(key, body).str("id")
	b.visit("/bad")
	auth := a.holder()
	order := tenant.Order{ID: "tkd_1", Target: tenant.Target{URL: shortBase + "/bad"}, Reason: "phishing", At: c.now().UTC().Truncate(time.Millisecond)}
	down, err := auth.TakeDown(t.Context(), order)
	if err != nil || down.RecordID != id || down.AccountID != "acc_a" || down.URL != shortBase+"/Bad" || down.Kind != tenant.KindLink {
		t.Fatalf("takedown = %+v, %v; want it with the link's ID, account and URL", down, err)
	}
	gone := func(what string) {
		t.Helper()
		if v := b.visit("/bad", asJSON...); v.status != 410 || v.code() != "TAKEN_DOWN" {
			t.Fatalf("visit, %s: %v, want 410 TAKEN_DOWN", what, v)
		}
		if v := b.visit("/bad"); v.status != 410 || strings.Contains(v.text, "phishing") {
			t.Fatalf("page, %s: %v, want 410 without the reason", what, v)
		}
	}
	gone("taken down")
	again, err := auth.TakeDown(t.Context(), tenant.Order{ID: "tkd_2", Target: tenant.Target{ID: id}, Reason: "other", At: c.now()})
	if err != nil || again.ID != "tkd_1" || again.Reason != "phishing" {
		t.Errorf("second takedown = %+v, %v; want the first", again, err)
	}
	got := a.api(key, "GET", "/api/v1/links/"+id, nil)
	if got.str("status") != "taken_down" || got.json["takenDown"].(map[string]any)["reason"] != "phishing" {
		t.Errorf("link as its owner sees it = %v, want taken_down with the reason", got)
	}
	a.api(key, "PATCH", "/api/v1/links/"+id, `{"url":"https://example.org/","expiresAt":"2001-01-01"}`)
	gone("edited")
	a.api(key, "DELETE", "/api/v1/links/"+id, nil)
	c.forward(40 * 24 * time.Hour)
	want(t, "create by another account after the quarantine", a.api(c.keys.Key(t, "acc_b", identity.Creator), "POST", "/api/v1/links", body), 409, "SLUG_TAKEN")
	second := a.create(key, body).str("id")
	gone("link created again")
	if err := auth.Lift(t.Context(), tenant.Takedown{ID: "tkd_other", Kind: tenant.KindLink, RecordID: second, URL: down.URL}); err != nil {
		t.Fatal(err)
	}
	gone("different takedown lifted")
	if err := auth.Lift(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	if v := b.visit("/bad"); v.status != 302 {
		t.Errorf("visit after the takedown was lifted: %v, want 302", v)
	}
	if got := a.api(key, "GET", "/api/v1/links/"+second, nil); got.str("status") != "active" || got.json["takenDown"] != nil {
		t.Errorf("link as its owner sees it after the lift = %v, want active", got)
	}
	// auth did not get the response, so it only knows the URL in the order.
	order.ID = "tkd_3"
	if _, err := auth.TakeDown(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	gone("taken down again")
	if err := auth.Lift(t.Context(), tenant.Takedown{ID: order.ID, Kind: tenant.KindLink, URL: order.Target.URL}); err != nil {
		t.Fatal(err)
	}
	if v := b.visit("/bad"); v.status != 302 {
		t.Errorf("visit after a lift that names only the URL: %v, want 302", v)
	}
	for _, target := range []tenant.Target{{ID: "lnk_none"}, {URL: shortBase + "/none"}, {URL: "https://elsewhere.example/bad"}, {URL: "nonsense"}} {
		if _, err := auth.TakeDown(t.Context(), tenant.Order{ID: "t", Target: target}); apierr.CodeOf(err) != apierr.LinkNotFound {
			t.Errorf("takedown of %v: %v, want LINK_NOT_FOUND", target, err)
		}
	}
}

func TestBlockedDestinations(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	list := filepath.Join(t.TempDir(), "blocked")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# nothing yet\n")
	r := c.replica(t, func(cfg *links.Config) { cfg.BlockedDestinations = list })
	key := c.keys.Key(t, "acc_a", identity.Business)
	id := r.create(key, map[string]any{"url": "https://deep.evil.example/x", "slug": "deep"}).str("id")
	r.create(key, map[string]any{"url": "https://notevil.example/", "slug": "other"})
	r.visit("/deep")
	write("# bad ones\n\nEVIL.example\n*.münchen.example\n")
	eventually(t, "the list is reloaded", func() bool { return r.visit("/deep").status == 410 })
	if v := r.visit("/other"); v.status != 302 {
		t.Errorf("visit to a link to a host that only shares the suffix: %v, want 302", v)
	}
	for _, url := range []string{"https://evil.example", "http://EVIL.example:8080/x?y", "https://a.b.evil.example./", "https://xn--mnchen-3ya.example/", "https://www.münchen.example/"} {
		a := r.api(key, "POST", "/api/v1/links", map[string]string{"url": url})
		if a.status != 400 || a.fields()["url"] != "blocked_destination" {
			t.Errorf("create %s: %v, want 400 blocked_destination", url, a)
		}
	}
	if a := r.api(key, "PATCH", "/api/v1/links/"+id, `{"url":"https://evil.example"}`); a.fields()["url"] != "blocked_destination" {
		t.Errorf("PATCH to a blocked host: %v, want blocked_destination", a)
	}
	if a := r.api(key, "PATCH", "/api/v1/links/"+id, `{"title":"x"}`); a.status != 200 {
		t.Errorf("PATCH the title of a link to a blocked host: %v, want 200", a)
	}
	write("")
	eventually(t, "the emptied list is loaded", func() bool { return r.visit("/deep").status == 302 })
	cfg := c.config(t)
	cfg.BlockedDestinations = list + ".none"
	if _, err := links.New(t.Context(), cfg); err == nil {
		t.Error("New without the list file succeeded, want an error")
	}
}

func TestErasureLeavesNothingAndOthersAlone(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	z, addr := newZone(t)
	c.dns = addr
	r := c.replica(t)
	key, other := c.keys.Key(t, "acc_a", identity.Business), c.keys.Key(t, "acc_b", identity.Business)
	made := r.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`)
	z.set("_linkreel.go.example.com", made.json["records"].([]any)[0].(map[string]any)["value"].(string))
	r.api(key, "POST", "/api/v1/domains/"+made.str("id")+"/verify", nil)
	r.create(key, map[string]any{"url": "https://example.com/", "domainId": made.str("id"), "slug": "on"})
	for i := range 3 {
		var items []string
		for j := range 100 {
			items = append(items, fmt.Sprintf(`{"url":"https://a.example/","slug":"s%d-%d"}`, i, j))
		}
		if a := r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[`+strings.Join(items, ",")+`]}`); a.status != 201 {
			t.Fatal(a)
		}
	}
	r.create(other, map[string]any{"url": "https://example.com/", "slug": "stays"})
	r.visit("/s0-0")
	r.visit("/stays")
	eventually(t, "counts", func() bool { return clicksBySlug(r, other)["stays"] == 1 })
	auth := r.holder()
	if err := auth.SetState(t.Context(), "acc_a", tenant.Standing{State: tenant.Deleting, Version: 2}); err != nil {
		t.Fatal(err)
	}
	if v := r.visit("/s1-1"); v.status != 410 {
		t.Errorf("visit during the erasure: %v, want 410", v)
	}
	if done, err := auth.Erased(t.Context(), "acc_a"); done || err != nil {
		t.Errorf("Erased directly after the request = %v, %v; want false", done, err)
	}
	c.forward(time.Minute)
	eventually(t, "erased", func() bool {
		_ = auth.SetState(t.Context(), "acc_a", tenant.Standing{State: tenant.Deleting, Version: 2}) // auth repeats the call, which makes the purge due
		done, err := auth.Erased(t.Context(), "acc_a")
		return done && err == nil
	})
	kept := func(collection, account string) int {
		found, err := c.Client(t).Collection(collection).Where("accountId", "==", account).Documents(t.Context()).GetAll()
		if err != nil {
			t.Error(err)
		}
		return len(found)
	}
	if links, domains := kept("links", "acc_a"), kept("domains", "acc_a"); links > 0 || domains > 0 {
		t.Errorf("got %d links and %d domains after the erasure, want none", links, domains)
	}
	want(t, "create with a held slug", r.api(other, "POST", "/api/v1/links", `{"url":"https://a.example","slug":"s2-5"}`), 409, "SLUG_TAKEN")
	if v := r.visit("/stays"); v.status != 302 {
		t.Errorf("visit to another account's link: %v, want 302", v)
	}
	if n := kept("links", "acc_b"); n != 1 {
		t.Errorf("another account has %d links, want 1", n)
	}
	if done, err := auth.Erased(t.Context(), "acc_b"); done || err != nil {
		t.Errorf("Erased for an active account = %v, %v; want false", done, err)
	}
}

func TestExportHasEverythingOfTheAccount(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Business)
	r.api(key, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`)
	for range 5 {
		r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[`+strings.TrimSuffix(strings.Repeat(`{"url":"https://a.example","title":"<T>","ogTitle":"o"},`, 90), ",")+`]}`)
	}
	clicked := r.create(key, map[string]any{
		"url": "https://a.example", "slug": "clicked",
		"rules": []any{rule("sale", "https://sale.example", map[string]any{"query": map[string]any{"c": "*"}})},
	}).str("id")
	spoilt := r.create(key, map[string]any{"url": "https://a.example"}).str("id")
	r.create(c.keys.Key(t, "acc_b", identity.Business), map[string]any{"url": "https://b.example"})
	r.visit("/clicked?c=1", "Referer", "https://news.example/")
	eventually(t, "the click is counted", func() bool { return clicksBySlug(r, key)["clicked"] == 1 })
	if _, err := c.Client(t).Collection("links").Doc(spoilt).Update(t.Context(), []firestore.Update{{Path: "title", Value: 7}}); err != nil {
		t.Fatal(err)
	}
	spoiltDay := c.Client(t).Collection("links").Doc(clicked).Collection("days").Doc("2020-01-01")
	if _, err := spoiltDay.Set(t.Context(), map[string]any{"clicks": "many"}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.holder().Export(t.Context(), "acc_a", &out); err != nil {
		t.Fatal(err)
	}
	count, ids := map[string]int{}, map[any]bool{}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var line struct {
			Type string
			Data map[string]any
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		count[line.Type]++
		switch line.Type {
		case "link":
			ids[line.Data["id"]] = true
			if line.Data["slug"] != "clicked" && (line.Data["ogTitle"] != "o" || line.Data["title"] != "<T>") {
				t.Fatalf("exported link = %v, want title <T> and ogTitle o", line.Data)
			}
		case "unreadable":
			if id := line.Data["id"]; id != map[any]string{"link": spoilt, "linkStats": clicked + "/2020-01-01"}[line.Data["type"]] {
				t.Errorf("unreadable record = %v, want the damaged link or day", line.Data)
			}
		case "linkStats":
			if line.Data["clicks"] != 1.0 || line.Data["referrers"].([]any)[0].(map[string]any)["host"] != "news.example" ||
				line.Data["rules"].([]any)[0].(map[string]any)["rule"] != "sale" {
				t.Errorf("exported statistics = %v, want one click with its referrer and rule", line.Data)
			}
		}
	}
	if count["link"] != 451 || len(ids) != 451 || count["domain"] != 1 || count["linkStats"] != 1 || count["unreadable"] != 2 {
		t.Errorf("exported %v, %d distinct links; want 451 links, 1 domain, 1 day of statistics, 2 unreadable records", count, len(ids))
	}
}

// TestAnExportHoldsFewDaysOfItsLinks pauses while reading an export of links with many days of
// statistics. During the pause, the service may hold only some days of a few links. After the
// pause, every day must be exported.
func TestAnExportHoldsFewDaysOfItsLinks(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t, func(cfg *links.Config) { cfg.Flush = false })
	key := c.keys.Key(t, "acc_a", identity.Enterprise)
	nLinks, nDays := 16, 100
	if os.Getenv("LINKREEL_FULL") != "" {
		nDays = 400
	}
	referrers := map[string]int64{}
	for i := range 100 {
		referrers[fmt.Sprintf("host-%d-%s%%2Eexample", i, strings.Repeat("x", 30))] = int64(i)
	}
	client, first := c.Client(t), link.DayOf(time.Date(2025, 11, 1, 0, 0, 0, 0, time.UTC))
	writes := client.BulkWriter(t.Context())
	for range nLinks {
		ref := client.Collection("links").Doc(r.create(key, map[string]any{"url": "https://a.example"}).str("id"))
		if _, err := ref.Update(t.Context(), []firestore.Update{{Path: "clicks", Value: 7}}); err != nil {
			t.Fatal(err)
		}
		for day := range nDays {
			if _, err := writes.Create(ref.Collection("days").Doc((first + link.Day(day)).String()), map[string]any{"clicks": 7, "referrers": referrers}); err != nil {
				t.Fatal(err)
			}
		}
	}
	writes.End()

	c.Firestore.ResetStats()
	lines, stop := r.export("acc_a")
	defer stop()
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	var read int64
	for before := int64(-1); before != read; time.Sleep(200 * time.Millisecond) {
		before, read = read, c.Firestore.Stats().Reads
	}
	t.Logf("%d documents were read for a client that read one line", read)
	if most := int64(nLinks + nLinks*8 + 64 + 8); read > most {
		t.Errorf("%d documents were read for a client that read one line, want at most %d", read, most)
	}
	// Every day must be exported exactly once, in order and after its link.
	var days int
	var of, last string
	seen := map[string]bool{}
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var line struct {
			Type string
			Data struct{ ID, LinkID, Date string }
		}
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatal(err)
		}
		if line.Type == "link" {
			of, last = line.Data.ID, ""
			continue
		}
		if of != "" && line.Data.LinkID != of || line.Data.Date <= last {
			t.Fatalf("day %s of link %s comes after day %s of link %s, want ascending days grouped by link", line.Data.Date, line.Data.LinkID, last, of)
		}
		last = line.Data.Date
		seen[line.Data.LinkID+last] = true
		days++
	}
	if days != nLinks*nDays || len(seen) != days {
		t.Errorf("got %d days, %d of them distinct, want %d", days, len(seen), nLinks*nDays)
	}
}

// TestAPodRunsFewExports checks the limits on concurrent exports. Exports compete with redirects
// for memory, and one account must not take up all slots.
func TestAPodRunsFewExports(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	accounts := []string{"acc_a", "acc_b", "acc_c", "acc_d"}
	bulk := `{"urls":[` + strings.TrimSuffix(strings.Repeat(`{"url":"https://a.example","title":"`+strings.Repeat("T", 490)+`"},`, 100), ",") + `]}`
	for _, account := range accounts {
		key := c.keys.Key(t, account, identity.Enterprise)
		for range 4 { // more than the buffers between the service and the client can hold
			if a := r.api(key, "POST", "/api/v1/links/bulk", bulk); a.status != 201 {
				t.Fatal(a)
			}
		}
	}
	refused := func(account string) {
		t.Helper()
		if res := r.startExport(account); res.StatusCode != 429 || res.Header.Get("Retry-After") != "30" {
			t.Errorf("export of %s over the limit: %s, Retry-After %q; want 429, 30", account, res.Status, res.Header.Get("Retry-After"))
		}
	}
	var stops []func()
	begin := func(account string) {
		t.Helper()
		_, stop := r.export(account)
		stops = append(stops, stop)
		t.Cleanup(stop)
	}
	begin("acc_a")
	begin("acc_a")
	refused("acc_a") // both of the account's slots are in use, even though other slots are free
	for _, account := range accounts[1:] {
		begin(account)
		begin(account)
	}
	refused("acc_e")
	stops[0]()
	eventually(t, "an export starts after another has ended", func() bool { return r.startExport("acc_a").StatusCode == 200 })
}

// export starts an export and returns a reader of its lines.
func (r *replica) export(account string) (lines *bufio.Reader, stop func()) {
	r.t.Helper()
	res := r.startExport(account)
	if res.StatusCode != http.StatusOK {
		r.t.Fatal(res.Status)
	}
	return bufio.NewReader(res.Body), func() { _ = res.Body.Close() }
}

// startExport calls the service without sockets because sockets would buffer megabytes.
func (r *replica) startExport(account string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, "http://internal/internal/v1/accounts/export",
		strings.NewReader(`{"accountId":"`+account+`"}`))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+internalToken)
	res, err := r.clients["internal"].Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// TestAnExportReadsNoFurtherThanItsReader pauses while reading an export. During the pause, the
// service may hold only a few pages of links in memory, no matter how many links the account has.
func TestAnExportReadsNoFurtherThanItsReader(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key := c.keys.Key(t, "acc_a", identity.Enterprise)
	const links = 6_000
	title := strings.Repeat("T", 200)
	for range links / 100 {
		if a := r.api(key, "POST", "/api/v1/links/bulk", `{"urls":[`+strings.TrimSuffix(strings.Repeat(`{"url":"https://a.example","title":"`+title+`"},`, 100), ",")+`]}`); a.status != 201 {
			t.Fatal(a)
		}
	}
	c.Firestore.ResetStats()
	lines, stop := r.export("acc_a")
	defer stop()
	if _, err := lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	for before := int64(-1); before != c.Firestore.Stats().Reads; time.Sleep(200 * time.Millisecond) {
		before = c.Firestore.Stats().Reads
	}
	if n := c.Firestore.Stats().Reads; n > links/4 {
		t.Errorf("%d documents were read for a client that read one line, want at most a quarter of the links", n)
	}
	n := 1
	for {
		if _, err := lines.ReadString('\n'); err != nil {
			break
		}
		n++
	}
	if n != links {
		t.Errorf("got %d lines, want %d", n, links)
	}
}

func TestWhatIsCommittedAfterAnErasureIsErasedToo(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	r := c.replica(t)
	key, n := c.keys.Key(t, "acc_a", identity.Business), 0
	keepertest.TakesWhatIsCommittedLate(t, keepertest.Service{
		Holder: r.holder(), Account: "acc_a", Forward: c.forward,
		// The key still works because this test's auth service does not know about the erasure.
		Commit: func() { n++; r.create(key, map[string]any{"url": "https://a.example", "slug": fmt.Sprint("late", n)}) },
		Left: func() int {
			found, err := c.Client(t).Collection("links").Where("accountId", "==", "acc_a").Documents(t.Context()).GetAll()
			if err != nil {
				t.Error(err)
			}
			return len(found)
		},
	})
}
