package jsdate

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "recompute the values in testdata/corpus.json with Node")

// sample is a string with the milliseconds that V8 parses from it, or null for NaN.
type sample struct {
	Text string `json:"text"`
	MS   *int64 `json:"ms"`
}

const corpusFile = "testdata/corpus.json"

func corpus(t testing.TB) []sample {
	t.Helper()
	raw, err := os.ReadFile(corpusFile)
	if err != nil {
		t.Fatal(err)
	}
	var all []sample
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestParseReadsTheCorpusAsV8Does(t *testing.T) {
	all := corpus(t)
	if *update {
		texts := make([]string, len(all))
		for i, s := range all {
			texts[i] = s.Text
		}
		all = askNode(t, texts)
		raw, err := json.MarshalIndent(all, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(corpusFile, append(raw, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range all {
		if diff := cmp.Diff(s, parsed(s.Text)); diff != "" {
			t.Errorf("Parse(%q) differs from V8 (-want +got):\n%s", s.Text, diff)
		}
	}
}

func parsed(text string) sample {
	s := sample{Text: text}
	if ms, ok := Parse(text); ok {
		s.MS = &ms
	}
	return s
}

func TestFromNumber(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n    float64
		want int64
		ok   bool
	}{
		"instant":                      {1_790_000_000_000, 1_790_000_000_000, true},
		"fraction":                     {1.9, 1, true},
		"negative fraction":            {-1.9, -1, true},
		"last millisecond":             {Max, Max, true},
		"after the last millisecond":   {Max + 1, 0, false},
		"first millisecond":            {-Max, -Max, true},
		"before the first millisecond": {-Max - 1, 0, false},
		"not a number":                 {math.NaN(), 0, false},
		"infinity":                     {math.Inf(1), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := FromNumber(c.n); got != c.want || ok != c.ok {
				t.Errorf("FromNumber(%v) = %d, %v, want %d, %v", c.n, got, ok, c.want, c.ok)
			}
		})
	}
}

// TestParseAgreesWithNode compares Parse and Node on generated strings. LINKREEL_JSDATE_COUNT sets
// how many.
func TestParseAgreesWithNode(t *testing.T) {
	count := 20_000
	if s := os.Getenv("LINKREEL_JSDATE_COUNT"); s != "" {
		var err error
		if count, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	gen := generator{rand.New(rand.NewPCG(seed, 1)), corpus(t)}
	texts := make([]string, count)
	for i := range texts {
		texts[i] = gen.text()
	}
	valid, differing := 0, 0
	for _, want := range askNode(t, texts) {
		if want.MS != nil {
			valid++
		}
		got := parsed(want.Text)
		if cmp.Equal(want, got) {
			continue
		}
		if differing++; differing <= 10 {
			t.Logf("Parse(%q) = %s, want %s as in Node", want.Text, show(got), show(want))
		}
	}
	t.Logf("%d strings (%d of them dates), %d parsed differently, seed %d", count, valid, differing, seed)
	if differing*1000 > count {
		t.Errorf("%d of %d strings are parsed differently, want at most 0.1 %%", differing, count)
	}
}

func show(s sample) string {
	if s.MS == nil {
		return "NaN"
	}
	return strconv.FormatInt(*s.MS, 10)
}

func askNode(t *testing.T, texts []string) []sample {
	t.Helper()
	in, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "-e",
		`const a=JSON.parse(require("fs").readFileSync(0,"utf8"));`+
			`console.log(JSON.stringify(a.map(text=>{const n=Date.parse(text);return {text,ms:Number.isNaN(n)?null:n}})))`)
	cmd.Env = append(os.Environ(), "TZ=UTC")
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("run node: %v", err)
	}
	var all []sample
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// generator generates valid and almost valid dates: common formats, random combinations of the
// grammar's parts, and slightly damaged versions of both.
type generator struct {
	*rand.Rand
	seeds []sample
}

func (g generator) pick(s ...string) string { return s[g.IntN(len(s))] }

func (g generator) text() string {
	var s string
	switch g.IntN(4) {
	case 0:
		s = g.form()
	case 1:
		s = g.parts()
	case 2:
		s = g.seeds[g.IntN(len(g.seeds))].Text
	default:
		s = g.form() + g.pick("", " ", "T", "t", ", ") + g.form()
	}
	for range g.IntN(4) - 1 {
		s = g.damage(s)
	}
	return s
}

func (g generator) form() string {
	at := time.UnixMilli(g.Int64N(8e12) - 2e12).UTC()
	return at.Format(g.pick(time.RFC3339, time.RFC3339Nano, time.RFC1123, time.RFC1123Z, time.RFC850, time.RFC822,
		time.ANSIC, time.UnixDate, time.Kitchen, time.DateTime, time.DateOnly, time.TimeOnly, "2006", "2006-01", "1/2/2006", "2 Jan 2006",
		"January 2, 2006 3:04 PM", "Jan 2 2006 15:04:05 GMT-0700", "2006/01/02 15:04", "Jan-2-06", "20060102", "2.1.2006",
		"2006-01-02T15:04", "2006-01-02T15:04:05.000000000Z", "2006-01-02T15:04:05-0700", "+002006-01-02", "-002006-01-02T15:04:05Z",
		"Mon Jan 02 2006 15:04:05 GMT-0700 (Coordinated Universal Time)"))
}

func (g generator) parts() string {
	var b strings.Builder
	for range 1 + g.IntN(9) {
		b.WriteString(g.pick("0", "1", "12", "13", "24", "31", "32", "49", "50", "59", "60", "99", "100", "2026", "0005", "275760", "000000", "999999999",
			"123456789012", ":", "::", "-", "+", ".", ",", "/", " ", "  ", "\t", "\n", "\r", "\u00a0", "\u2028", "(", ")", "(x)", "T", "t", "Z", "z", "UTC", "gmt", "EST",
			"pdt", "Jan", "august", "Decxyz", "am", "PM", "noon", "é", "ß", "日", "😀", "\x00", "GMT+1", "T10:20", "10:20:30", "10:20:30.5"))
	}
	return b.String()
}

func (g generator) damage(s string) string {
	r := []rune(s)
	if len(r) == 0 {
		return g.pick("0", "T", " ")
	}
	i := g.IntN(len(r))
	switch g.IntN(4) {
	case 0:
		return string(r[:i]) + string(r[i+1:])
	case 1:
		return string(r[:i]) + g.pick("0", "1", "9", ":", "-", "+", ".", " ", "T", "Z", "a", "(", ")") + string(r[i:])
	case 2:
		r[i] = []rune("0123456789:-+. TZapm()/,")[g.IntN(24)]
		return string(r)
	}
	return string(r[:i])
}

func FuzzParse(f *testing.F) {
	for _, s := range corpus(f) {
		f.Add(s.Text)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ms, ok := Parse(s)
		if !ok {
			return
		}
		if ms < -Max || ms > Max {
			t.Fatalf("Parse(%q) = %d, want a value in the range of a Date", s, ms)
		}
		iso := time.UnixMilli(ms).UTC()
		if y := iso.Year(); y < 0 || y > 9999 {
			return
		}
		if again, ok := Parse(iso.Format("2006-01-02T15:04:05.000Z")); !ok || again != ms {
			t.Fatalf("Parse(%q) = %d, but Parse for its ISO form = %d, %v; want the same time", s, ms, again, ok)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for name, s := range map[string]string{"iso": "2026-11-20T10:20:30.123Z", "legacy": "Fri, 20 Nov 2026 10:20:30 GMT+0100"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(s)
			}
		})
	}
}
