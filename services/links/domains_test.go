package links_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links"
)

// zone is a name server on loopback with TXT records that tests set.
type zone struct {
	mu   sync.Mutex
	txt  map[string][]string
	fail bool
}

func (z *zone) set(name string, texts ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.txt[strings.TrimSuffix(name, ".")+"."] = texts
}

func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	r := new(dns.Msg)
	r.SetReply(q)
	if z.fail {
		r.SetRcode(q, dns.RcodeServerFailure)
	} else if len(z.txt[q.Question[0].Name]) == 0 {
		r.SetRcode(q, dns.RcodeNameError)
	}
	for _, text := range z.txt[q.Question[0].Name] {
		r.Answer = append(r.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{text}})
	}
	_ = w.WriteMsg(r)
}

func newZone(t *testing.T) (*zone, string) {
	t.Helper()
	udp, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	z := &zone{txt: map[string][]string{}}
	started := make(chan struct{})
	s := &dns.Server{PacketConn: udp, Handler: z, NotifyStartedFunc: func() { close(started) }}
	go func() { _ = s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown() })
	return z, udp.LocalAddr().String()
}

func TestADomainFromClaimToDelete(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	z, addr := newZone(t)
	c.dns = addr
	r, other := c.replica(t), c.replica(t, func(cfg *links.Config) { cfg.Flush = false })
	key, rival := c.keys.Key(t, "acc_a", identity.Creator), c.keys.Key(t, "acc_b", identity.Creator)

	made := r.api(key, "POST", "/api/v1/domains", `{"hostname":"Go.Example.COM"}`)
	if made.status != 201 || made.str("hostname") != "go.example.com" || made.str("status") != "pending" || made.header.Get("Location") != "/api/v1/domains/"+made.str("id") {
		t.Fatalf("claim: %v %v; want 201, pending, and a Location header with the ID", made, made.header)
	}
	record := made.json["records"].([]any)[0].(map[string]any)
	if made.json["checkedAt"] != nil || made.json["reason"] != nil {
		t.Errorf("domain before the first check: %v, want no checkedAt and no reason", made)
	}
	if record["type"] != "TXT" || record["name"] != "_linkreel.go.example.com" || !strings.HasPrefix(record["value"].(string), "linkreel-verify=") {
		t.Errorf("first record = %v, want a TXT record with the token", record)
	}
	if to := made.json["records"].([]any)[1].(map[string]any); to["type"] != "CNAME" || to["name"] != "go.example.com" || to["value"] != "lrl.example" {
		t.Errorf("second record = %v, want a CNAME from go.example.com to lrl.example", to)
	}
	if c, _ := made.json["certificate"].(map[string]any); c["status"] != "none" || c["expiresAt"] != nil || c["error"] != nil || len(c) != 3 {
		t.Errorf("certificate without TLS on demand = %v, want status none and no other value", made.json["certificate"])
	}
	path := "/api/v1/domains/" + made.str("id")
	theirs := r.api(rival, "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`)
	if theirs.status != 201 || theirs.json["records"].([]any)[0].(map[string]any)["value"] == record["value"] {
		t.Fatalf("claim by another account: %v, want 201 with a different token", theirs)
	}
	for name, bad := range map[string]string{"one label": "localhost", "address": "192.0.2.1", "wildcard": "*.example.com", "port": "a.example:80", "ours": "lrl.example", "empty": ""} {
		want(t, name, r.api(key, "POST", "/api/v1/domains", map[string]string{"hostname": bad}), 400, "VALIDATION_ERROR")
	}
	want(t, "foreign", r.api(rival, "GET", path, nil), 404, "DOMAIN_NOT_FOUND")
	want(t, "verify by another account", r.api(rival, "POST", path+"/verify", nil), 404, "DOMAIN_NOT_FOUND")
	want(t, "delete by another account", r.api(rival, "DELETE", path, nil), 404, "DOMAIN_NOT_FOUND")
	onDomain := `{"url":"https://example.com/x","slug":"api","domainId":"` + made.str("id") + `"}`
	want(t, "link on an unverified domain", r.api(key, "POST", "/api/v1/links", onDomain), 409, "DOMAIN_NOT_VERIFIED")
	want(t, "link on another account's domain", r.api(rival, "POST", "/api/v1/links", onDomain), 404, "DOMAIN_NOT_FOUND")

	if a := r.api(key, "POST", path+"/verify", nil); a.status != 200 || a.str("status") != "pending" || a.json["checkedAt"] == nil || !strings.Contains(a.str("reason"), "_linkreel.go.example.com") {
		t.Errorf("verify without a record: %v, want pending and a reason with the record's name", a)
	}
	z.mu.Lock()
	z.fail = true
	z.mu.Unlock()
	if a := r.api(key, "POST", path+"/verify", `{}`); a.status != 200 || a.str("status") != "pending" || a.str("reason") == "" {
		t.Errorf("verify while the name server fails: %v, want pending and a reason", a)
	}
	z.mu.Lock()
	z.fail = false
	z.mu.Unlock()
	z.set("_linkreel.go.example.com", "v=spf1 -all", record["value"].(string))
	if v := other.visit("/api", "Host", "go.example.com"); v.status != 404 {
		t.Errorf("visit to an unverified domain: %v, want 404", v)
	}
	if a := r.api(key, "POST", path+"/verify", nil); a.status != 200 || a.str("status") != "verified" || a.json["verifiedAt"] == nil || a.json["reason"] != nil {
		t.Fatalf("verify: %v, want verified without a reason", a)
	}
	want(t, "verify by another account after the first", r.api(rival, "POST", "/api/v1/domains/"+theirs.str("id")+"/verify", nil), 409, "DOMAIN_TAKEN")
	want(t, "claim to a verified domain", r.api(c.keys.Key(t, "acc_c", identity.Creator), "POST", "/api/v1/domains", `{"hostname":"go.example.com"}`), 409, "DOMAIN_TAKEN")
	if a := r.do("internal", "GET", "http://internal/internal/v1/domains/ask?domain=GO.example.com", nil); a.status != 200 {
		t.Errorf("ask: %v, want 200", a)
	}

	onIt := r.api(key, "POST", "/api/v1/links", onDomain)
	if onIt.status != 201 || onIt.str("shortUrl") != "http://go.example.com/api" {
		t.Fatalf("link on the domain: %v, want 201 with its short URL", onIt)
	}
	want(t, "link that loops", r.api(key, "POST", "/api/v1/links", `{"url":"http://go.example.com/y","domainId":"`+made.str("id")+`"}`), 400, "VALIDATION_ERROR")
	if a := r.api(key, "GET", "/api/v1/links/"+onIt.str("id"), nil); a.str("domainId") != made.str("id") {
		t.Errorf("link = %v, want domainId %s", a, made.str("id"))
	}
	r.create(key, map[string]any{"url": "https://example.com/over", "slug": "over", "title": "T", "expiresAt": 1000, "tags": []string{"a"}, "externalId": "e", "archived": true})
	listed := r.api(key, "GET", "/api/v1/links", nil).json["data"].([]any)
	for i, short := range []string{shortBase + "/over", "http://go.example.com/api"} {
		// List items omit only the preview and the rules, so callers do not have to fetch each
		// link.
		item := listed[i].(map[string]any)
		one := r.api(key, "GET", "/api/v1/links/"+item["_id"].(string), nil).json
		for _, more := range []string{"ogTitle", "ogDescription", "ogImage", "updatedAt", "takenDown", "rules"} {
			delete(one, more)
		}
		if diff := cmp.Diff(one, item); diff != "" || item["shortUrl"] != short || item["status"] != []string{"expired", "active"}[i] || (item["domainId"] == nil) != (i == 0) {
			t.Errorf("listed %v (-GET for one +item):\n%s", item, diff)
		}
	}
	for _, host := range []string{"go.example.com", "GO.example.com:8080"} {
		if v := other.visit("/API", "Host", host); v.status != 302 || v.header.Get("Location") != "https://example.com/x" {
			t.Errorf("visit at %s: %v, want 302 to https://example.com/x", host, v)
		}
	}
	if v := other.visit("/api"); v.status != 404 {
		t.Errorf("visit to the domain's slug on the default host: %v, want 404", v)
	}
	if v := other.visit("/robots.txt", "Host", "go.example.com"); v.status != 200 {
		t.Errorf("robots.txt on the domain: %v, want 200", v)
	}
	eventually(t, "the click on the domain is counted", func() bool {
		return r.api(key, "GET", "/api/v1/links/"+onIt.str("id"), nil).json["clicks"] == 2.0
	})
	want(t, "delete a domain with links", r.api(key, "DELETE", path, nil), 409, "DOMAIN_IN_USE")
	r.api(key, "DELETE", "/api/v1/links/"+onIt.str("id"), nil)
	if a := r.api(key, "DELETE", path, nil); a.status != 204 {
		t.Errorf("delete: %v, want 204", a)
	}
	if v := other.visit("/api", "Host", "go.example.com"); v.status != 404 {
		t.Errorf("visit after the delete: %v, want 404", v)
	}
	if a := r.api(key, "GET", "/api/v1/domains", nil); a.text != `{"data":[],"hasMore":false,"nextCursor":null}` {
		t.Errorf("list: %v, want it empty", a)
	}
	c.forward(time.Second)
	if a := r.api(rival, "POST", "/api/v1/domains/"+theirs.str("id")+"/verify", nil); a.status != 200 || a.str("status") != "pending" {
		t.Errorf("verify by the other account after the delete: %v, want pending", a)
	}
}
