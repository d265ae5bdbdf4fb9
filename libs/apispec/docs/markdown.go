package docs

import (
	"bytes"
	"html/template"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	gmtext "github.com/yuin/goldmark/text"
)

var markdown = sync.OnceValue(func() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.Table), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
})

// toHTML renders Markdown. Heading levels start at lowest: if lowest is 2, an h1 becomes an h2.
// Links to documents that are not served become plain text.
func toHTML(written string, lowest int) template.HTML { return documentHTML("", written, lowest) }

// documentHTML is [toHTML] for a guide. Links in a guide are relative to its path.
func documentHTML(guide, written string, lowest int) template.HTML {
	src := []byte(written)
	doc := markdown().Parser().Parse(gmtext.NewReader(src), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	var links []*ast.Link
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // cannot fail: the function returns nil
		switch n := n.(type) {
		case *ast.Heading:
			n.Level = max(n.Level, lowest)
		case *ast.Link:
			if entering {
				links = append(links, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, l := range links { // not during the walk, which must not change the tree
		if to, served := target(guide, string(l.Destination)); served {
			l.Destination = []byte(to)
			continue
		}
		for l.FirstChild() != nil {
			l.Parent().InsertBefore(l.Parent(), l, l.FirstChild())
		}
		l.Parent().RemoveChild(l.Parent(), l)
	}
	var out bytes.Buffer
	if err := markdown().Renderer().Render(&out, src, doc); err != nil {
		panic(err) // the text is embedded, so tests would have caught it
	}
	return template.HTML(dressed.Replace(out.String())) //nolint:gosec // goldmark escapes what is not Markdown
}

// dressed makes tables and code accessible. Wide ones can be focused and scrolled with the
// keyboard, and an empty heading cell becomes a plain cell, so screen readers do not announce it.
// The document's own text cannot contain these tags, because goldmark escapes it.
var dressed = strings.NewReplacer(
	"<table>", `<div class="scroll" role="group" tabindex="0" aria-label="Table"><table>`, "</table>", "</table></div>",
	"<pre>", `<pre tabindex="0">`, "<th></th>", "<td></td>", "<th>", `<th scope="col">`,
)

// toSpan renders Markdown without a paragraph around it.
func toSpan(written string) template.HTML {
	line := strings.TrimSpace(string(toHTML(strings.Join(strings.Fields(written), " "), 1)))
	return template.HTML(strings.TrimSuffix(strings.TrimPrefix(line, "<p>"), "</p>")) //nolint:gosec // goldmark has escaped it
}

// anchors gives each heading the same fragment as GitHub does, so links work on both sites.
type anchors struct{}

var notWords = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]+`)

func (anchors) Generate(title []byte, _ ast.NodeKind) []byte {
	return bytes.ReplaceAll(bytes.ToLower(notWords.ReplaceAll(title, nil)), []byte(" "), []byte("-"))
}

func (anchors) Put([]byte) {}

// target returns the URL that replaces a link in a guide when a deployment serves the guide. It
// returns false if the linked file is not served.
func target(guide, href string) (string, bool) {
	file, fragment, _ := strings.Cut(href, "#")
	name, document := strings.CutSuffix(path.Join(path.Dir(guide), file), ".md")
	switch {
	case strings.HasPrefix(href, "#"), strings.HasPrefix(href, "https://"):
		return href, true
	case strings.HasSuffix(file, "openapi.yaml"):
		return "/openapi.yaml", true
	case document && slices.Contains(guideNames, name):
		to := "/docs/guides/" + name
		if fragment != "" {
			to += "#" + fragment
		}
		return to, true
	}
	return "", false
}
