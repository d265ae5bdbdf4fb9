// Package design is the design system for all Linkreel pages: one stylesheet with the
// tokens (colours, type, space; light and dark), the components, and the icons.
//
// Each page links to [Stylesheet] and uses its classes. None of the pages use inline styles, so the
// Content-Security-Policy does not need 'unsafe-inline'. Components are plain HTML elements where
// possible: a button is a <button>, and its class only selects the variant. The comment at the top
// of assets/design.css lists the classes.
package design

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"
	"unicode/utf8"
)

// File is a static file. Its name changes with its content, so it can be cached
// forever.
type File struct {
	Name        string // such as design.5f2a9c01.css
	ContentType string
	Bytes       []byte
}

//go:embed assets/tokens.css
var tokens []byte

//go:embed assets/design.css
var css []byte

// Tokens is a stylesheet that contains only the custom properties. It is for pages with their own
// small stylesheet: the start page and the redirect pages. Share pages include it at build time.
var Tokens = string(tokens)

// TabTitle returns the text of <title>: the page's title and the product name, shortened to at most
// 70 characters of escaped HTML. Browser tabs, history and search results show no more than that.
func TabTitle(title string) string {
	const suffix = " · Linkreel"
	room := 70 - utf8.RuneCountInString(suffix)
	written := func(s string) int { return utf8.RuneCountInString(html.EscapeString(s)) }
	if written(title) <= room {
		return title + suffix
	}
	length := 0
	for i, r := range title {
		// One character is reserved for the "…".
		if length += written(string(r)); length >= room {
			title = strings.TrimSpace(title[:i]) + "…"
			break
		}
	}
	return title + suffix
}

// Stylesheet contains the complete design system.
var Stylesheet = NewFile("design.css", "text/css; charset=utf-8", slices.Concat(tokens, css))

// NewFile returns a file whose name includes a hash of its content: "a.css" becomes "a.<hash>.css".
func NewFile(name, contentType string, content []byte) File {
	sum := sha256.Sum256(content)
	base, ext, _ := strings.Cut(name, ".")
	return File{Name: base + "." + hex.EncodeToString(sum[:4]) + "." + ext, ContentType: contentType, Bytes: content}
}

// icons are 24 by 24 units, drawn with strokes in the text colour.
var icons = map[string]string{
	"home":     `<path d="M3 11l9-8 9 8"/><path d="M5 10v10h14V10"/>`,
	"link":     `<path d="M10 14a5 5 0 0 0 7 0l3-3a5 5 0 0 0-7-7l-1 1"/><path d="M14 10a5 5 0 0 0-7 0l-3 3a5 5 0 0 0 7 7l1-1"/>`,
	"video":    `<rect x="3" y="5" width="18" height="14" rx="2"/><path d="M10 9l5 3-5 3z"/>`,
	"upload":   `<path d="M12 16V4"/><path d="M7 9l5-5 5 5"/><path d="M4 20h16"/>`,
	"record":   `<circle cx="12" cy="12" r="9"/><circle cx="12" cy="12" r="3"/>`,
	"domain":   `<circle cx="12" cy="12" r="9"/><path d="M3 12h18"/><path d="M12 3a14 14 0 0 1 0 18a14 14 0 0 1 0-18"/>`,
	"webhook":  `<circle cx="6" cy="17" r="3"/><circle cx="18" cy="17" r="3"/><circle cx="12" cy="6" r="3"/><path d="M10 9l-3 5M9 17h6M14 9l3 5"/>`,
	"key":      `<circle cx="8" cy="15" r="4"/><path d="M11 12l9-9M16 7l3 3"/>`,
	"people":   `<circle cx="9" cy="8" r="4"/><path d="M2 21a7 7 0 0 1 14 0"/><path d="M16 4a4 4 0 0 1 0 8M18 14a7 7 0 0 1 4 7"/>`,
	"activity": `<path d="M3 12h4l3-8 4 16 3-8h4"/>`,
	"settings": `<circle cx="12" cy="12" r="3"/><path d="M12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M19 5l-2 2M7 17l-2 2"/>`,
	"copy":     `<rect x="8" y="8" width="12" height="12" rx="2"/><path d="M16 8V6a2 2 0 0 0-2-2H6a2 2 0 0 0-2 2v8a2 2 0 0 0 2 2h2"/>`,
	"check":    `<path d="M5 12l5 5 9-11"/>`,
	"search":   `<circle cx="11" cy="11" r="7"/><path d="M16 16l5 5"/>`,
	"archive":  `<rect x="3" y="4" width="18" height="5" rx="1"/><path d="M5 9v11h14V9M10 13h4"/>`,
	"trash":    `<path d="M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13"/>`,
	"out":      `<path d="M14 4h5v16h-5M3 12h12M11 8l4 4-4 4"/>`,
	"external": `<path d="M14 4h6v6M20 4l-9 9M18 14v6H4V6h6"/>`,
	"warning":  `<path d="M12 3l10 18H2z"/><path d="M12 10v5M12 18v.01"/>`,
}

// Icon returns an icon to show next to text with the same meaning, so the icon is hidden from
// screen readers. Icon panics if the name is unknown: that is a bug in the page, and any test that
// renders the page will catch it.
func Icon(name string) template.HTML {
	body, ok := icons[name]
	if !ok {
		panic(fmt.Sprintf("design: no icon %q", name))
	}
	return template.HTML(`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">` + body + `</svg>`) //nolint:gosec // our own drawings
}

// Icons returns the names of all icons.
func Icons() []string {
	names := make([]string, 0, len(icons))
	for name := range icons {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
