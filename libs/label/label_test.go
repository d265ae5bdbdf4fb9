package label_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/label"
)

func TestTags(t *testing.T) {
	t.Parallel()
	many := make([]string, 21)
	for i := range many {
		many[i] = fmt.Sprint("tag ", i)
	}
	for name, tc := range map[string]struct {
		given, want []string
		bad         int
	}{
		"surrounding spaces":                {[]string{" Spring ", "été"}, []string{"Spring", "été"}, 0},
		"same tag in a different case":      {[]string{"Sale", "SALE", "sale "}, []string{"Sale"}, 0},
		"composed and decomposed":           {[]string{"\u00e9", "e\u0301"}, []string{"\u00e9"}, 0},
		"tags that differ in accents":       {[]string{"resume", "résumé"}, []string{"resume", "résumé"}, 0},
		"fifty characters":                  {[]string{strings.Repeat("é", 50)}, []string{strings.Repeat("é", 50)}, 0},
		"too long, empty, and with a comma": {[]string{strings.Repeat("é", 51), " ", "a,b", "a\nb"}, []string{}, 4},
		"21 tags":                           {many, many, 1},
		"21 tags with one duplicate":        {append(many[:20:20], "TAG 0"), many[:20], 0},
		"none":                              {nil, []string{}, 0},
	} {
		got, bad := label.Tags("tags", tc.given)
		if diff := cmp.Diff(tc.want, got); diff != "" || len(bad) != tc.bad {
			t.Errorf("%s: %d violations, want %d; %s", name, len(bad), tc.bad, diff)
		}
	}
}

func TestExternalID(t *testing.T) {
	t.Parallel()
	for id, ok := range map[string]bool{
		"a": true, "order #7 ~": true, strings.Repeat("x", 255): true, strings.Repeat("x", 256): false, "": false, "é": false, "a\tb": false, "a\x7f": false,
	} {
		if bad := label.ExternalID("externalId", id); (len(bad) == 0) != ok {
			t.Errorf("ExternalID(%q) = %v, want valid = %v", id, bad, ok)
		}
	}
}
