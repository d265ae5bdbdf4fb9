package design_test

import (
	"bytes"
	"encoding/xml"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/linkreel/linkreel/libs/design"
)

func TestFilesAreNamedByTheirContent(t *testing.T) {
	t.Parallel()
	a, b := design.NewFile("x.css", "text/css", []byte("a")), design.NewFile("x.css", "text/css", []byte("b"))
	if a.Name == b.Name || !regexp.MustCompile(`^x\.[0-9a-f]{8}\.css$`).MatchString(a.Name) {
		t.Errorf("file names for different content = %s and %s, want different names with a hash", a.Name, b.Name)
	}
}

func TestTabTitlesAreShort(t *testing.T) {
	t.Parallel()
	for title, want := range map[string]string{
		"Links":                  "Links · Linkreel",
		"":                       " · Linkreel",
		strings.Repeat("ä", 59):  strings.Repeat("ä", 59) + " · Linkreel",
		strings.Repeat("ä", 60):  strings.Repeat("ä", 58) + "… · Linkreel",
		strings.Repeat("<b>", 9): strings.Repeat("<b>", 6) + "<… · Linkreel",
		"bad \xff byte":          "bad \xff byte · Linkreel",
	} {
		got := design.TabTitle(title)
		if got != want || utf8.RuneCountInString(html.EscapeString(got)) > 70 {
			t.Errorf("TabTitle(%q) = %q, want %q", title, got, want)
		}
	}
}

func TestIconsAreWellFormedAndHidden(t *testing.T) {
	t.Parallel()
	for _, name := range design.Icons() {
		svg := string(design.Icon(name))
		if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil || !strings.Contains(svg, `aria-hidden="true"`) {
			t.Errorf("icon %s: got error %v, want valid XML that contains aria-hidden", name, err)
		}
	}
}

// Browsers silently ignore a rule that uses an undefined custom property.
func TestEveryTokenThatIsUsedIsDefined(t *testing.T) {
	t.Parallel()
	css := design.Stylesheet.Bytes
	for _, m := range regexp.MustCompile(`var\((--[a-z0-9-]+)\)`).FindAllSubmatch(css, -1) {
		if !bytes.Contains(css, append(m[1], ':')) {
			t.Errorf("the custom property %s is used but not defined", m[1])
		}
	}
}

// WCAG 2.2 AA requires a contrast of 4.5 to 1 for text, and of 3 to 1 for control borders and the
// focus ring.
func TestColoursHaveContrastInBothSchemes(t *testing.T) {
	t.Parallel()
	css := string(design.Stylesheet.Bytes)
	light, dark := scheme(css, `:root {`), scheme(css, `@media (prefers-color-scheme: dark) {`)
	for name, c := range map[string]map[string]string{"light": light, "dark": dark} {
		for _, pair := range []struct {
			front, back string
			least       float64
		}{
			{"--ink", "--paper", 7}, {"--ink", "--card", 7}, {"--muted", "--paper", 4.5}, {"--muted", "--card", 4.5}, {"--accent", "--paper", 4.5},
			{"--accent", "--card", 4.5}, {"--on-accent", "--accent", 4.5}, {"--bad", "--paper", 4.5}, {"--bad", "--card", 4.5}, {"--on-bad", "--bad", 4.5},
			{"--good", "--card", 4.5}, {"--edge", "--card", 3}, {"--edge", "--paper", 3}, {"--accent", "--tint", 4.5}, {"--ink", "--tint", 7},
		} {
			if got := contrast(t, c[pair.front], c[pair.back]); got < pair.least {
				t.Errorf("%s: the contrast of %s on %s is %.2f to 1, want at least %.1f", name, pair.front, pair.back, got, pair.least)
			}
		}
	}
}

// scheme returns the colours in the first block after start.
func scheme(css, start string) map[string]string {
	_, rest, _ := strings.Cut(css, start)
	out := map[string]string{}
	for _, m := range regexp.MustCompile(`(--[a-z-]+):\s*(#[0-9a-f]{6});`).FindAllStringSubmatch(rest, -1) {
		if _, has := out[m[1]]; !has {
			out[m[1]] = m[2]
		}
	}
	return out
}

func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	la, lb := luminance(t, a), luminance(t, b)
	return (math.Max(la, lb) + .05) / (math.Min(la, lb) + .05)
}

func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) != 7 {
		t.Fatalf("colour = %q, want the format #rrggbb", hex)
	}
	var sum float64
	for i, weight := range []float64{.2126, .7152, .0722} {
		n, err := strconv.ParseUint(hex[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		v := float64(n) / 255
		if v <= .04045 {
			v /= 12.92
		} else {
			v = math.Pow((v+.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}
