package links_test

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/maxmind/mmdbwriter"
	"github.com/maxmind/mmdbwriter/mmdbtype"

	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links"
)

func TestAVisitorsCountry(t *testing.T) {
	t.Parallel()
	c := newWorld(t)
	key := c.keys.Key(t, "acc_a", identity.Creator)
	file := countryFile(t, map[string]string{"81.2.69.0/24": "GB", "2001:db8::/32": "JP"})
	// The test connects from 0.0.0.0.
	behindProxy := c.replica(t, func(cfg *links.Config) {
		cfg.CountryHeader, cfg.GeoIPFile, cfg.TrustedProxies = "CF-IPCountry", file, []netip.Prefix{netip.MustParsePrefix("0.0.0.0/32")}
	})
	open := c.replica(t, func(cfg *links.Config) { cfg.CountryHeader, cfg.GeoIPFile = "CF-IPCountry", file })
	for name, try := range map[string]struct {
		visited *replica
		header  []string
		want    string
	}{
		"proxy header":                     {behindProxy, []string{"CF-IPCountry", "de", "X-Forwarded-For", "81.2.69.142"}, "DE"},
		"IPv4 address in the file":         {behindProxy, []string{"X-Forwarded-For", "81.2.69.142"}, "GB"},
		"IPv6 address in the file":         {behindProxy, []string{"X-Forwarded-For", "2001:db8::1"}, "JP"},
		"last hop before the proxy":        {behindProxy, []string{"X-Forwarded-For", "2001:db8::1, 81.2.69.142"}, "GB"},
		"header without a country code":    {behindProxy, []string{"CF-IPCountry", "<script>", "X-Forwarded-For", "81.2.69.142"}, "GB"},
		"address not in the file":          {behindProxy, []string{"X-Forwarded-For", "192.0.2.1"}, ""},
		"invalid address":                  {behindProxy, []string{"X-Forwarded-For", "somebody"}, ""},
		"headers from an untrusted client": {open, []string{"CF-IPCountry", "de", "X-Forwarded-For", "81.2.69.142"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			made := behindProxy.create(key, map[string]any{"url": "https://example.com/"})
			if a := try.visited.visit("/"+made.str("slug"), try.header...); a.status != 302 {
				t.Fatalf("visit: %v, want 302", a)
			}
			var stats answer
			eventually(t, "the click is counted", func() bool {
				stats = behindProxy.api(key, "GET", "/api/v1/links/"+made.str("id")+"/stats", nil)
				return stats.json["total"] == 1.0
			})
			if diff := cmp.Diff([]any{map[string]any{"country": try.want, "clicks": 1.0}}, stats.json["countries"]); diff != "" {
				t.Errorf("countries (-want +got):\n%s", diff)
			}
		})
	}
}

// countryFile writes a MaxMind database that maps networks to countries.
func countryFile(t *testing.T, countries map[string]string) string {
	t.Helper()
	tree, err := mmdbwriter.New(mmdbwriter.Options{DatabaseType: "GeoLite2-Country", IncludeReservedNetworks: true})
	if err != nil {
		t.Fatal(err)
	}
	for network, code := range countries {
		_, n, err := net.ParseCIDR(network)
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Insert(n, mmdbtype.Map{"country": mmdbtype.Map{"iso_code": mmdbtype.String(code)}}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "country.mmdb")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if _, err := tree.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	return path
}
