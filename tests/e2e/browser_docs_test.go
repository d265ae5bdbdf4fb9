package e2e

import (
	"regexp"
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/proto"
)

// The documentation fits narrow windows, and its layout does not shift while it loads.
func TestReferencePagesStayInPlace(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]look{"light desktop": {}, "dark phone": {width: 320, height: 700, dark: true}} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/docs", "/docs/try", "/docs/guides/api", "/docs/guides/cli"} {
				v := visitor(t, l)
				v.open(stack.BaseURL + path)
				shift := v.Timeout(patience).MustEval(`() => new Promise(done => {
					let sum = 0;
					new PerformanceObserver(list => list.getEntries().forEach(e => sum += e.value)).observe({type: "layout-shift", buffered: true});
					setTimeout(() => done(sum), 300);
				})`).Num()
				wide := v.Timeout(patience).MustEval(`() => document.documentElement.scrollWidth - document.documentElement.clientWidth`).Int()
				if shift > 0.01 || wide > 0 {
					t.Errorf("%s shifts by %v and is %d pixels wider than the window, want at most 0.01 and 0", path, shift, wide)
				}
				v.shot("reference-" + strings.NewReplacer(" ", "-", "/", "-").Replace(name+path))
				v.clean()
			}
		})
	}
}

// A reader of /docs/try calls this deployment, first with the form that the URL selects and then
// with a form that the reader opens. The page must not violate its own policy or call any other
// host. It must stay accessible when forms are open and responses are showing.
func TestDocsPageMakesACall(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]look{"light desktop": {}, "dark phone": {width: 320, height: 700, dark: true}} {
		t.Run(name, func(t *testing.T) {
			v := visitor(t, l)
			v.open(stack.BaseURL + "/docs/try#/Account/getAccount")
			send := func(form, status string) string {
				t.Helper()
				check(t, v.find(form+" button").Click(proto.InputMouseButtonLeft, 1))
				answer, err := v.find(form + " .answer").Text()
				check(t, err)
				if got := v.find(form + " output").MustText(); !strings.HasPrefix(got, status) {
					t.Errorf("%s: %s, want %s; %s", form, got, status, answer)
				}
				return answer
			}
			send("#getAccount", "401")
			check(t, v.find("#key").Input(stack.Keys["business"]))
			if answer := send("#getAccount", "200"); !strings.Contains(answer, `"plan": "business"`) || strings.Contains(answer, stack.Keys["business"]) {
				t.Errorf("the page shows the account %s, want the business plan and no key", answer)
			}
			check(t, v.find("#createLink summary").Click(proto.InputMouseButtonLeft, 1))
			link := send("#createLink", "201")
			if at := v.MustInfo().URL; !strings.HasSuffix(at, "#createLink") {
				t.Errorf("after opening a form, the URL is %s, want it to end with #createLink", at)
			}
			id := regexp.MustCompile(`"id": "(lnk_\w+)"`).FindStringSubmatch(link)
			if id == nil {
				t.Fatalf("the page shows %s, want a link with an id", link)
			}
			check(t, v.find("#getLinkQr summary").Click(proto.InputMouseButtonLeft, 1))
			check(t, v.find("#getLinkQr-id").Input(id[1]))
			send("#getLinkQr", "200")
			v.until("the QR code is shown", `() => document.querySelector("#getLinkQr img")?.naturalWidth > 0`)
			v.accessible("with three responses")
			hosts := v.Timeout(patience).MustEval(`() => performance.getEntriesByType("resource").map(e => new URL(e.name, location).origin).filter(o => o !== location.origin && o !== "null").join(" ")`).Str()
			if hosts != "" {
				t.Errorf("the page called the hosts %s, want only its own", hosts)
			}
			wide := v.Timeout(patience).MustEval(`() => document.documentElement.scrollWidth - document.documentElement.clientWidth`).Int()
			if wide > 0 {
				t.Errorf("the page is %d pixels wider than the window", wide)
			}
			v.shot("docs-" + strings.ReplaceAll(name, " ", "-"))
			v.clean("401")
		})
	}
}
