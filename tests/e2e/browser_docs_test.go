package e2e

import (
	"strings"
	"testing"
)

// The reference and the guides fit into narrow windows, stay where they are drawn
// and need no script.
func TestReferencePagesStayInPlace(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]look{"light desktop": {}, "dark phone": {width: 320, height: 700, dark: true}} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/docs", "/docs/guides/api", "/docs/guides/cli"} {
				v := visitor(t, l)
				v.open(stack.BaseURL + path)
				shift := v.Timeout(patience).MustEval(`() => new Promise(done => {
					let sum = 0;
					new PerformanceObserver(list => list.getEntries().forEach(e => sum += e.value)).observe({type: "layout-shift", buffered: true});
					setTimeout(() => done(sum), 300);
				})`).Num()
				wide := v.Timeout(patience).MustEval(`() => document.documentElement.scrollWidth - document.documentElement.clientWidth`).Int()
				if shift > 0.01 || wide > 0 {
					t.Errorf("%s shifts by %v and is %d pixels wider than the window", path, shift, wide)
				}
				v.shot("reference-" + strings.NewReplacer(" ", "-", "/", "-").Replace(name+path))
				v.clean()
			}
		})
	}
}

// A reader of the documentation page authorizes, makes a call against this very
// deployment, and the page breaks neither its own policy nor asks another host.
func TestDocsPageMakesACall(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]look{"light desktop": {}, "dark phone": {width: 390, height: 800, dark: true}} {
		t.Run(name, func(t *testing.T) {
			v := visitor(t, l)
			v.open(stack.BaseURL + "/docs/try")
			click := func(selector string) {
				t.Helper()
				e := v.Timeout(patience).MustElement(selector)
				if _, err := e.Eval(`() => this.click()`); err != nil {
					t.Fatalf("click %s: %v", selector, err)
				}
			}
			click(".btn.authorize")
			key := v.Timeout(patience).MustElement("#auth-bearer-value, [aria-label=auth-bearer-value]")
			check(t, key.Input(stack.Keys["business"]))
			click(".auth-btn-wrapper .btn.authorize")
			click(".auth-btn-wrapper .btn-done")
			click("#operations-Account-getAccount .opblock-summary-control")
			click("#operations-Account-getAccount .btn.execute")
			status := v.Timeout(patience).MustElement("#operations-Account-getAccount .live-responses-table tbody .response-col_status")
			if text, err := status.Text(); err != nil || !strings.HasPrefix(text, "200") {
				t.Errorf("the call answered %q, %v", text, err)
			}
			hosts := v.Timeout(patience).MustEval(`() => performance.getEntriesByType("resource").map(e => new URL(e.name, location).origin).filter(o => o !== location.origin && o !== "null").join(" ")`).Str()
			if hosts != "" {
				t.Errorf("the page asked %s", hosts)
			}
			wide := v.Timeout(patience).MustEval(`() => document.documentElement.scrollWidth - document.documentElement.clientWidth`).Int()
			if wide > 0 {
				t.Errorf("the page is %d pixels wider than the window", wide)
			}
			v.shot("docs-" + strings.ReplaceAll(name, " ", "-"))
			v.clean()
		})
	}
}
