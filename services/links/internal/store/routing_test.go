package store

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/localcloud/procstat"
)

// The link cache's memory limit relies on the size that a routing reports. The test is not parallel
// because it measures the heap.
func TestARoutingTakesNoMoreMemoryThanItSays(t *testing.T) {
	to := func(n int) urlDoc {
		address := fmt.Sprintf("https://example.com/%d/%s", n, strings.Repeat("p", 20))
		return urlDoc{address, address}
	}
	many := func(n int, each func(i int) ruleDoc) routingDoc {
		var d routingDoc
		for i := range n {
			rule := each(i)
			rule.Name, rule.URL = fmt.Sprint("rule ", i), to(i)
			d.Rules = append(d.Rules, rule)
		}
		return d
	}
	query := map[string]string{}
	for i := range 40 {
		query[fmt.Sprint("parameter", i)] = fmt.Sprint(i)
	}
	at := int64(2e12)
	page := to(0)
	for name, d := range map[string]routingDoc{
		"no_rules":           {RedirectType: 301},
		"pages_and_password": {Expired: &page, StartsAt: &at, Password: strings.Repeat("h", 97), MaxClicks: 5, SplitKey: strings.Repeat("k", 32)},
		"one_rule":           many(1, func(int) ruleDoc { return ruleDoc{Devices: []string{"phone"}} }),
		"20_percentages":     many(20, func(int) ruleDoc { return ruleDoc{Percent: 5} }),
		"20_countries":       many(20, func(int) ruleDoc { return ruleDoc{Countries: []string{"DE", "AT", "CH", "FR", "IT"}} }),
		"20_queries":         many(20, func(int) ruleDoc { return ruleDoc{Query: map[string]string{"utm_source": "newsletter"}} }),
		"large_queries":      many(5, func(int) ruleDoc { return ruleDoc{Query: query} }),
		"all_of_it": many(20, func(int) ruleDoc {
			return ruleDoc{
				Countries: []string{"DE", "AT"}, Devices: []string{"phone", "tablet"}, Systems: []string{"ios", "android"},
				Languages: []string{"de", "en-GB", "zh-Hans-CN"}, Query: map[string]string{"c": "*", "d": "1"}, From: &at, Until: &at, Percent: 10,
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			kept := make([]*link.Routing, 2000)
			before := procstat.Heap()
			for i := range kept {
				var own routingDoc // decoded separately for each routing, so no two routings share strings
				if err := json.Unmarshal(raw, &own); err != nil {
					t.Fatal(err)
				}
				kept[i] = routingOf(&own)
			}
			used := (procstat.Heap() - before) / int64(len(kept))
			says := int64(kept[0].Size())
			t.Logf("%d bytes used, %d reported", used, says)
			if used > says || says > used*3/2+128 {
				t.Errorf("Size() = %[2]d, want slightly more than the %[1]d bytes used", used, says)
			}
			runtime.KeepAlive(kept)
		})
	}
}
