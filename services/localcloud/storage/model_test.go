package storage_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// The test compares listing with a minimal implementation of production's documented behaviour.
func TestListingAgreesWithAModel(t *testing.T) {
	t.Parallel()
	e := start(t, storage.Options{})
	pick := func(n int) string {
		var b strings.Builder
		for range rand.IntN(n) {
			b.WriteString([]string{"a", "b", "/", "ä", "~"}[rand.IntN(5)])
		}
		return b.String()
	}
	var names []string
	for range 60 {
		if n := "m" + pick(6); !slices.Contains(names, n) {
			names = append(names, n)
			e.put(t, n, "x")
		}
	}
	slices.Sort(names)
	for range 150 {
		prefix, delimiter, size := "m"+pick(3), []string{"", "/", "a", "ä/"}[rand.IntN(4)], 1+rand.IntN(5)
		trailing := rand.IntN(2) == 0
		start, end := "", ""
		if rand.IntN(3) == 0 {
			start = "m" + pick(3)
		}
		if rand.IntN(3) == 0 {
			end = "m" + pick(3)
		}
		wantNames, wantPrefixes := []string{}, []string{}
		for _, n := range names {
			if !strings.HasPrefix(n, prefix) || n < start || end != "" && n >= end {
				continue
			}
			if i := strings.Index(n[len(prefix):], delimiter); delimiter != "" && i >= 0 {
				p := n[:len(prefix)+i+len(delimiter)]
				if !slices.Contains(wantPrefixes, p) {
					wantPrefixes = append(wantPrefixes, p)
				}
				if !trailing || n != p {
					continue
				}
			}
			wantNames = append(wantNames, n)
		}
		gotNames, gotPrefixes := []string{}, []string{}
		q := url.Values{"prefix": {prefix}, "delimiter": {delimiter}, "maxResults": {fmt.Sprint(size)}, "startOffset": {start}, "endOffset": {end},
			"includeTrailingDelimiter": {fmt.Sprint(trailing)}}
		for pages := 0; ; pages++ {
			var page struct {
				Items         []struct{ Name string }
				Prefixes      []string
				NextPageToken string
			}
			if err := json.Unmarshal([]byte(call(t, "GET", e.api.URL+"/storage/v1/b/b-1/o?"+q.Encode(), nil).body), &page); err != nil {
				t.Fatal(err)
			}
			for _, i := range page.Items {
				gotNames = append(gotNames, i.Name)
			}
			gotPrefixes = append(gotPrefixes, page.Prefixes...)
			if page.NextPageToken == "" {
				break
			}
			if pages > len(names) {
				t.Fatalf("listing with %v returned more pages than there are names", q)
			}
			q.Set("pageToken", page.NextPageToken)
		}
		if d := cmp.Diff(wantNames, gotNames) + cmp.Diff(wantPrefixes, gotPrefixes); d != "" {
			t.Errorf("listing with %v differs from the model: %s", q, d)
		}
	}
}
