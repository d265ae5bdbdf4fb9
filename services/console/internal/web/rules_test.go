package web

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Conditions do not change when a page shows them in a field and reads them back.
func FuzzConditions(f *testing.F) {
	f.Add("utm_source", "mail")
	f.Add(" a=b&c\u00a0", "1+1 = 2%\r\n\t*")
	f.Add("ü", "\u0085")
	f.Fuzz(func(t *testing.T, name, value string) {
		if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
			return // no record can have this condition
		}
		shown := strings.Join(conditions(map[string]string{name: value, name + "2": "*"}), "\r\n")
		got, ok := readConditions(unix(shown))
		if !ok || len(got) != 2 || got[name] != value || got[name+"2"] != "*" {
			t.Errorf("condition %q=%q is shown as %q and read as %q, want the same condition", name, value, shown, got)
		}
	})
}
