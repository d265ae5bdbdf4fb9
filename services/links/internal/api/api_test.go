package api

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/linkreel/linkreel/libs/jsdate"
)

func FuzzParseCursor(f *testing.F) {
	for _, s := range []string{"", "0", "9007199254740991", "9007199254740992", "-1", "+1", "1.0", "01", "１"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := parseCursor(text)
		if !ok {
			return
		}
		if want, err := strconv.ParseInt(text, 10, 64); err != nil || want != n || n < 0 || n > 1<<53-1 {
			t.Fatalf("parseCursor(%q) = %d, want %d from 0 to 2^53-1, %v", text, n, want, err)
		}
	})
}

// FuzzMoment checks that every JSON value yields either an error or a date that JavaScript can
// represent.
func FuzzMoment(f *testing.F) {
	for _, s := range []string{`"2026-11-20"`, `1.9e12`, `1e999`, `-0`, `""`, `"Nov 20"`, `8640000000000000.5`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var m jsdate.Moment
		if !json.Valid([]byte(text)) || json.Unmarshal([]byte(text), &m) != nil {
			return
		}
		e, problem := expiry(m)()
		if (problem == nil) != e.Set {
			t.Fatalf("parsed %s = %+v, %+v; want either a time or a problem", text, e, problem)
		}
		if e.Set && (e.MS > jsdate.Max || e.MS < -jsdate.Max) {
			t.Fatalf("parsed %s = %d ms, want at most ±%d", text, e.MS, int64(jsdate.Max))
		}
	})
}
