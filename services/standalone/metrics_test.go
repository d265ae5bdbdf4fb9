package standalone_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/metrics"
)

// TestSeriesExistFromTheStart reads /metrics from a process that has not done anything yet. It is
// in this module because this module imports all services.
func TestSeriesExistFromTheStart(t *testing.T) {
	t.Parallel()
	const fresh = "LINKREEL_TEST_FRESH"
	if os.Getenv(fresh) != "" {
		rec := httptest.NewRecorder()
		boot.AdminHandler(func() error { return nil }, "").ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
		fmt.Println(rec.Body)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), fresh+"=1")
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	declared := metrics.Declared()
	if len(declared) < 10 {
		t.Fatalf("%d metrics declare their series, want at least 10", len(declared))
	}
	for name, d := range declared {
		var want, got []string
		for _, s := range d.Series {
			var labels []string
			for i, value := range s {
				labels = append(labels, fmt.Sprintf("%s=%q", d.Labels[i], value))
			}
			slices.Sort(labels)
			want = append(want, strings.Join(labels, ","))
		}
		for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:_count)?\{(.*)\} 0$`).FindAllStringSubmatch(string(text), -1) {
			got = append(got, m[1])
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s in a fresh process has the series\n%s\nwant these, all 0:\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		row := regexp.MustCompile("(?m)^\\| `" + name + "` [^|]*").FindString(string(manual))
		for _, s := range d.Series {
			for _, value := range s {
				if value == strings.ToUpper(value) && !regexp.MustCompile(`^\d+$`).MatchString(value) {
					continue // an API error code, or an empty value
				}
				if !regexp.MustCompile(`\b` + value + `\b`).MatchString(row) {
					t.Errorf("docs/operations.md does not mention value %s of %s", value, name)
				}
			}
		}
	}
}
