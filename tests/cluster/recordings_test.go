package cluster

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/apikey/authtest"
	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// recording is a published request, as an application received it from an edge. Each file in
// testdata/edges starts with comments, one key each, followed by the head of the request. The keys
// are:
//
//   - Source, Published, Changed: the source, its author and date, and the changes made to it.
//   - Recipe: the first cell of the row for this edge in operations.md.
//   - Peer: the address that called the application. If the source does not give it, a plausible
//     address for the edge.
//   - Client, Scheme: the values that the application must determine.
//   - Replaces: "yes" if the edge replaces X-Forwarded-For instead of appending to it.
//   - Believed: "no" if the edge does not have the recipe's settings, so the application must
//     not trust its headers.
type recording struct {
	about     map[string]string
	host      string
	forwarded string
	others    []string // all headers other than Host and X-Forwarded-For
}

func readRecording(t *testing.T, path string) recording {
	t.Helper()
	r := recording{about: map[string]string{}}
	request := false
	for line := range strings.Lines(string(read(t, path))) {
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(strings.TrimPrefix(line, "# "), ": ")
		switch {
		case strings.HasPrefix(line, "# "):
			r.about[name] = value
		case !request:
			request = line == "GET / HTTP/1.1"
		case strings.EqualFold(name, "Host"):
			r.host = value
		case strings.EqualFold(name, "X-Forwarded-For"):
			r.forwarded = value
		default:
			r.others = append(r.others, line)
		}
	}
	for _, key := range []string{"Source", "Published", "Changed", "Recipe", "Peer", "Client", "Scheme"} {
		if r.about[key] == "" {
			t.Fatalf("%s does not have a %s key", path, key)
		}
	}
	if !request || r.host == "" || r.forwarded == "" {
		t.Fatalf("%s does not have a request with Host and X-Forwarded-For", path)
	}
	return r
}

func (r recording) header(name string) string {
	for _, line := range r.others {
		if n, value, _ := strings.Cut(line, ": "); strings.EqualFold(n, name) {
			return value
		}
	}
	return ""
}

// edge returns a proxy that forwards requests with the recording's headers.
func (r recording) edge() edge {
	return edge{
		peer: r.about["Peer"], replace: r.about["Replaces"] == "yes",
		appends: func(string) string { return r.forwarded },
		adds:    func(string) []string { return r.others },
	}
}

// recipe returns the arguments that the table in operations.md gives for an edge.
func recipe(t *testing.T, docs, edge string) []string {
	t.Helper()
	_, row, found := strings.Cut(docs, "\n| "+edge+" | ")
	row, _, _ = strings.Cut(row, "\n")
	hops := regexp.MustCompile("^`trustedProxyHops: ([0-9])`").FindStringSubmatch(row)
	switch {
	case !found:
		t.Fatalf("operations.md does not have a row for %q", edge)
	case strings.HasPrefix(row, "`gke.enabled`"):
		return []string{"--values", filepath.Join(chart, "ci/google.yaml")}
	case strings.HasPrefix(row, "the values below"):
		return cloudflareValues(t, docs)
	case hops != nil:
		return []string{"--set", "trustedProxyHops=" + hops[1]}
	case strings.HasPrefix(row, "`trustedProxies`") && strings.Contains(row, "`LINKREEL_COUNTRY_HEADER`"):
		return []string{"--set", "links.env.LINKREEL_COUNTRY_HEADER=CF-IPCountry"}
	case strings.HasPrefix(row, "`trustedProxies`"):
		return nil // the chart's default
	default:
		t.Fatalf("operations.md has settings that this test cannot read: %s", row)
	}
	return nil
}

// cloudflareValues returns the values in operations.md with Cloudflare's country header.
func cloudflareValues(t *testing.T, docs string) []string {
	t.Helper()
	for _, values := range yamlRecipes(t, docs) {
		if text, _ := json.Marshal(values); bytes.Contains(text, []byte("CF-IPCountry")) {
			return []string{"--values", valuesFile(t, values)}
		}
	}
	t.Fatal("operations.md does not have values for Cloudflare")
	return nil
}

// The test sends recorded requests to the service with the settings that operations.md gives for
// the edge, both unchanged and with headers that a visitor can forge.
func TestRecordedRequestsOfEdges(t *testing.T) {
	t.Parallel()
	docs := string(read(t, "../../docs/operations.md"))
	files, err := filepath.Glob("testdata/edges/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, file := range files {
		edge, _, _ := strings.Cut(filepath.Base(file), "-")
		count[edge]++
	}
	for _, edge := range []string{"amazon", "cloudflare", "envoy", "google"} {
		if count[edge] < 2 {
			t.Errorf("there are %d recordings of %s, want two or more", count[edge], edge)
		}
	}
	cloud := cloudtest.Start(t, cloudtest.Options{Indexes: [][]byte{links.Indexes(), tags.Indexes, idempotency.Indexes, outbox.Indexes}})
	auth := authtest.Start(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			r := readRecording(t, file)
			tls := "false"
			if r.about["Scheme"] == "https" {
				tls = "true"
			}
			objects, err := render(t, append(recipe(t, docs, r.about["Recipe"]), "--set", "hosts.base=app.example.com,hosts.short="+r.host+",tls.enabled="+tls)...)
			if err != nil {
				t.Fatal(err)
			}
			settings := environment(objects, "links")
			maps.Copy(settings, edgeStores(t, cloud, auth))
			settings["LINKREEL_GEOIP_FILE"] = countryFile(t, map[string]string{r.about["Client"] + "/32": "DE", "::/0": "FR"})
			// Without the header, the service looks up the country of the client's address.
			header := settings["LINKREEL_COUNTRY_HEADER"]
			delete(settings, "LINKREEL_COUNTRY_HEADER")
			key := auth.Key(t, "acc_"+strings.ToLower(identity.NewNonce()[:8]), identity.Creator)
			r.replay(t, settings, key, "DE", true)
			if country := r.header(header); header != "" && country != "" {
				settings["LINKREEL_COUNTRY_HEADER"], settings["LINKREEL_SPOOL_DIR"] = header, t.TempDir()
				r.replay(t, settings, key, country, r.about["Believed"] != "no")
			}
		})
	}
}

// replay creates a link with a rule for a country and visits it. of determines whether the visitor
// comes from that country.
func (r recording) replay(t *testing.T, settings map[string]string, key, country string, of bool) {
	t.Helper()
	b := &behind{edge: r.edge(), t: t, servers: serversOf(t, settings), real: map[string]string{}}
	body := `{"url":"https://example.com/others","rules":[{"name":"visitor","when":{"country":["` + country + `"]},"url":"https://example.com/visitor"}]}`
	res, text := b.ask("api", "", "POST", "app.example.com/api/v1/links", append(forgeries(stranger)["all of them"], "Authorization: Bearer "+key), body)
	var made struct{ Slug, ShortURL string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || res.StatusCode != http.StatusCreated {
		t.Fatalf("the create returned %d, want 201: %s", res.StatusCode, text)
	}
	if want := r.about["Scheme"] + "://" + r.host + "/" + made.Slug; made.ShortURL != want {
		t.Errorf("the short URL is %s, want %s", made.ShortURL, want)
	}
	to := "https://example.com/others"
	if of {
		to = "https://example.com/visitor"
	}
	all := forgeries(stranger)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		res, text := b.ask("redirect", "", "GET", r.host+"/"+made.Slug, all[name], "")
		if name == "variants of a name" && res.StatusCode == http.StatusBadRequest {
			continue // rejected as an invalid header
		}
		secure := res.Header.Get("Strict-Transport-Security") != ""
		if res.StatusCode != http.StatusFound || res.Header.Get("Location") != to || secure != (r.about["Scheme"] == "https") {
			t.Errorf("a visit with %s returned %d with Location %q and the headers %v, want 302 to %s: %.80s", name, res.StatusCode, res.Header.Get("Location"), res.Header, to, text)
		}
	}
}

// edgeStores returns the links service's settings for its stores.
func edgeStores(t *testing.T, cloud *cloudtest.Cloud, auth *authtest.Auth) map[string]string {
	t.Helper()
	return map[string]string{
		"LINKREEL_FIRESTORE_PROJECT": "test", "LINKREEL_FIRESTORE_ENDPOINT": cloud.Endpoint, "LINKREEL_FIRESTORE_TIMEOUT": "9s", "LINKREEL_FIRESTORE_DATABASE": "(default)",
		"LINKREEL_AUTH_URL": auth.URL, "LINKREEL_INTERNAL_TOKEN": authtest.Token, "LINKREEL_CLICK_BUDGET": "500ms",
		"LINKREEL_LOCALCLOUD_TOKEN": "", "LINKREEL_REDIS_PASSWORD": "", "LINKREEL_REDIS_CA_FILE": "", "LINKREEL_TLS_ADDR": "",
		"LINKREEL_SPOOL_DIR": t.TempDir(), "LINKREEL_REDIS_URL": redistest.Start(t),
	}
}
