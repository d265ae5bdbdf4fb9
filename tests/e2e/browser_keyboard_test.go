package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-rod/rod/lib/input"
	"github.com/go-rod/rod/lib/proto"
)

// keys acts like a person who uses only the keyboard.
type keys struct {
	*viewer
}

func (k keys) press(all ...input.Key) {
	k.t.Helper()
	check(k.t, k.Keyboard.Type(all...))
}

// focused returns a screen reader's description of the focused element.
func (k keys) focused() string {
	k.t.Helper()
	return eval[string](k.viewer, `() => {
	  const e = document.activeElement;
	  const label = e.getAttribute("aria-label") || [...(e.labels ?? [])].map((l) => l.textContent.trim()).join(" ") || e.textContent;
	  return e.tagName.toLowerCase() + " " + label.trim().replace(/\s+/g, " ").slice(0, 60);
	}`)
}

// to presses Tab until the focused element matches. It fails after more presses than a
// person would try.
func (k keys) to(pattern string) {
	k.t.Helper()
	want := regexp.MustCompile(pattern)
	for range 70 {
		if want.MatchString(k.focused()) {
			if !eval[bool](k.viewer, `() => { const e = document.activeElement, s = getComputedStyle(e); return e.matches(":focus-visible") && (s.outlineStyle !== "none" || s.boxShadow !== "none") }`) {
				k.t.Errorf("the focus on %q is not visible", k.focused())
			}
			return
		}
		k.press(input.Tab)
	}
	k.t.Fatalf("%s cannot be reached by Tab on %s", pattern, k.MustInfo().URL)
}

// write replaces the text of the focused field.
func (k keys) write(text string) {
	k.t.Helper()
	check(k.t, k.KeyActions().Press(input.ControlLeft).Type(input.KeyA).Release(input.ControlLeft).Do())
	check(k.t, k.Page.InsertText(text))
}

// arrive waits for a page with this heading.
func (k keys) arrive(heading string) {
	k.t.Helper()
	k.viewer.shows("h1", heading)
}

func (k keys) shows(text string) {
	k.t.Helper()
	k.viewer.shows("main", text)
}

// The test performs the ten main tasks in the console with only the keyboard: sign in, shorten,
// copy, find, edit, archive and undo, upload, watch, invite, sign out.
func TestConsoleByKeyboardAlone(t *testing.T) {
	t.Parallel()
	account := operator(t).want(201, "POST", "/admin/v1/accounts", map[string]any{"name": "No mouse", "plan": "business"}).str("id")
	link := operator(t).want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Kim", "role": "owner"}).str("url")
	v := visitor(t, look{})
	check(t, proto.BrowserGrantPermissions{Permissions: []proto.BrowserPermissionType{proto.BrowserPermissionTypeClipboardSanitizedWrite, proto.BrowserPermissionTypeClipboardReadWrite}, BrowserContextID: v.Browser().BrowserContextID}.Call(v.Browser()))
	k := keys{v}

	v.open(link)
	k.to("^button Sign in")
	k.press(input.Enter)
	k.arrive("Shorten a link")

	k.press(input.Tab)
	if f := k.focused(); !strings.HasPrefix(f, "a Skip") {
		t.Errorf("the first element that Tab reaches is %q, want the skip link", f)
	}
	k.press(input.Enter) // skip the navigation
	k.to("^input Destination")
	check(t, v.InsertText("https://go.dev/doc/effective_go"))
	k.press(input.Enter)
	k.shows("Your short link is ready")
	k.to("^button Copy")
	k.press(input.Enter)
	k.to("^button Copied")
	short := v.find(".short a").MustText()

	k.press(input.KeyG, input.KeyL)
	k.arrive("Links")
	k.press(input.Slash)
	if f := k.focused(); !strings.HasPrefix(f, "input Search") {
		t.Errorf("the key / moves the focus to %q, want the search field", f)
	}
	k.write("effective")
	k.press(input.Enter)
	v.until("the search", `() => location.search.includes("q=effective")`)
	k.arrive("Links")
	k.to("^a .*go.dev")
	k.press(input.Enter)
	k.shows(short)

	k.to("^input Title")
	k.write("How to write Go")
	k.press(input.Enter)
	k.arrive("How to write Go")

	k.press(input.KeyG, input.KeyL)
	k.arrive("Links")
	k.to("^input Choose")
	k.press(input.Space)
	k.to("^button Archive")
	k.press(input.Enter)
	v.until("an empty list", `() => !document.querySelector("ul.list")`)
	k.to("^button Undo")
	k.press(input.Enter)
	v.until("the link in the list", `() => !!document.querySelector("ul.list")?.textContent.includes("How to write Go")`)

	k.arrive("Links")
	// The browser draws the file picker. A key opens it, but the test chooses the file.
	k.press(input.KeyG, input.KeyU)
	k.arrive("Upload")
	v.until("a file field", `() => !document.querySelector("input[type=file]").disabled`)
	k.to("^input Video")
	choose, err := v.HandleFileDialog()
	check(t, err)
	k.press(input.Enter)
	check(t, choose([]string{scenery(t, 3)}))
	v.until("a video", `() => !!document.querySelector("#uploads")?.textContent.includes("Ready to watch")`)

	k.to("^a Open")
	k.press(input.Enter)
	k.arrive("scenery")
	k.to("^video|^button Play")
	k.press(input.Space)
	v.until("playing", `() => document.querySelector("main video").currentTime > 0.2`)

	check(t, v.KeyActions().Press(input.ControlLeft).Type(input.KeyK).Release(input.ControlLeft).Do())
	v.until("the palette", `() => !!document.querySelector("#palette")?.open`)
	check(t, v.InsertText("members"))
	k.press(input.Enter)
	k.arrive("Members")
	k.to("^input Name")
	check(t, v.InsertText("Noor"))
	k.press(input.Enter)
	k.shows("It works only once")

	k.to("^button Sign out")
	k.press(input.Enter)
	k.arrive("Sign in")
	v.clean("404", "networkError") // leaving a page with a player aborts its requests
}

// The test checks what a screen reader finds on three pages: landmarks, one level-one heading, no
// skipped levels, and a name for every control. Controls with different purposes must have
// different names.
func TestConsoleForAScreenReader(t *testing.T) {
	at := furnished()
	v := person(t, look{})
	for _, path := range []string{"/app/links", at["link"], at["video"]} {
		v.open(stack.BaseURL + path)
		v.Timeout(patience).MustWaitLoad()
		tree, err := proto.AccessibilityGetFullAXTree{}.Call(v.Page)
		check(t, err)
		text := func(x *proto.AccessibilityAXValue) string {
			if x == nil || x.Value.Nil() {
				return ""
			}
			return x.Value.Str()
		}
		landmarks, levels, names := map[string]int{}, []int{}, map[string]int{}
		for _, n := range tree.Nodes {
			if n.Ignored {
				continue
			}
			role, name := text(n.Role), strings.TrimSpace(text(n.Name))
			switch role {
			case "banner", "navigation", "main", "contentinfo", "search":
				landmarks[role]++
				if role == "navigation" && name == "" {
					t.Errorf("%s: a navigation landmark has no name", path)
				}
			case "heading":
				for _, p := range n.Properties {
					if p.Name == proto.AccessibilityAXPropertyNameLevel {
						levels = append(levels, p.Value.Value.Int())
					}
				}
				if name == "" {
					t.Errorf("%s: a heading has no text", path)
				}
			case "button", "link", "textbox", "searchbox", "checkbox", "combobox", "radio", "image", "img", "Video", "DateTime", "table":
				if name == "" {
					t.Errorf("%s: a %s has no name", path, role)
				}
				if role == "button" {
					names[name]++
				}
			}
		}
		for name, n := range names {
			// Every date field has a button that Chromium adds, always with this name.
			if n > 1 && !strings.HasPrefix(name, "Show local date and time picker") {
				t.Errorf("%s: %d buttons are called %q, want one", path, n, name)
			}
		}
		if landmarks["banner"] != 1 || landmarks["main"] != 1 || landmarks["navigation"] < 1 || landmarks["contentinfo"] != 1 {
			t.Errorf("%s: the landmarks are %v, want one banner, one main, one contentinfo and a navigation", path, landmarks)
		}
		if len(levels) == 0 || levels[0] != 1 || slices.Max(levels) > 3 {
			t.Errorf("%s: the heading levels are %v, want them to start with 1 and end at 3", path, levels)
		}
		for i, level := range levels {
			if i > 0 && (level == 1 || level > levels[i-1]+1) {
				t.Errorf("%s: heading %d has level %d after level %d", path, i, level, levels[i-1])
			}
		}
		t.Logf("%s: %d nodes, landmarks %v, headings %v", path, len(tree.Nodes), landmarks, levels)
	}
	v.clean("404", "networkError") // leaving a page with a player aborts its requests
}
