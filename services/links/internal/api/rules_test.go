package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/apispec"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// readRules parses rules from JSON in the same way as a create.
func readRules(h public, text string) ([]link.Rule, error) {
	var item wire.LinkCreate
	f, err := httpapi.DecodeObject([]byte(`{"url":"https://a.example/","rules":`+text+`}`), apispec.Load().Component("BulkItem"), &item)
	if err != nil {
		return nil, err
	}
	rules := h.rules(f, item.Rules.Value, nil)
	return rules, f.Err()
}

// FuzzRules checks that any string is either rejected or parsed as rules. If it is parsed, the
// rules that are returned must be valid input too, and every visit must get a decision.
func FuzzRules(f *testing.F) {
	for _, text := range []string{
		`null`, `[]`, `[{}]`, `[{"name":"a","url":"https://a.example/","when":{}}]`, `[{"name":"a","url":"https://a.example/","when":{"percent":50}}]`,
		`[{"name":" a ","url":"HTTP://A.example","when":{"country":["de"],"device":["mobile"],"system":["ios","other"],"language":["EN-us","x-y","zh-hans"]}}]`,
		`[{"name":"a","url":"https://a.example/?x#y","when":{"query":{"x y":"*","ü":"","*":"1"},"from":"2026-01-01T00:00:00Z","until":8.64e15}}]`,
		`[{"name":"a","url":"https://a.example/","when":{"from":-8.64e15}},{"name":"ß","url":"https://b.example/","when":{"percent":99}},{"name":"SS","url":"https://b.example/","when":{"percent":99}}]`,
	} {
		f.Add(text, "x+y=1&ü=%C3%BC&utm_source=a", "de-AT,en;q=0.5,*;q=0", "/a/b")
	}
	h := public{links: link.NewService(link.Options{Now: time.Now}), opt: Options{Countries: true}}
	f.Fuzz(func(t *testing.T, text, query, language, path string) {
		rules, err := readRules(h, text)
		if err != nil {
			return
		}
		shown, err := json.Marshal(wire.List(rules, ruleOf))
		if err != nil {
			t.Fatal(err)
		}
		again, err := readRules(h, string(shown))
		if err != nil {
			t.Fatalf("rules %s are returned as %s, which is rejected as input: %v; want it accepted", text, shown, err)
		}
		if diff := cmp.Diff(rules, again); len(rules) > 0 && diff != "" {
			t.Errorf("rules %s are returned as %s, which means something different (-want +got):\n%s", text, shown, diff)
		}
		target := &link.Target{Location: "https://a.example/", Routing: &link.Routing{Rules: rules, ForwardQuery: true, ForwardPath: true}}
		for place := range 100 {
			v := link.Visit{At: time.Now(), Query: query, Language: language, Country: "DE", Device: link.Mobile, System: link.Systems["ios"], Place: func(string) int { return place }}
			if strings.HasPrefix(path, "/") {
				v.Path = path
			}
			d := link.Decide(target, &v, &link.Surroundings{})
			if d.Outcome == link.Led && (d.Location == "" || strings.ContainsFunc(d.Location, func(r rune) bool { return r <= ' ' || r > '~' })) || d.Why() == "" {
				t.Fatalf("Decide = %+v, want a location in printable ASCII and a reason", d)
			}
		}
	})
}
