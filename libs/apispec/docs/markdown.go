package docs

import (
	"fmt"
	"html"
	"html/template"
	"path"
	"regexp"
	"slices"
	"strings"
)

// toHTML renders the part of Markdown that our documents use: headings,
// paragraphs, lists, tables, fenced code, and in them bold, code and links. All
// else is text. Links to documents that are not served become plain text.
func toHTML(text string, lowest int) template.HTML {
	r := renderer{lines: strings.Split(strings.TrimSpace(text), "\n"), lowest: lowest}
	for r.at < len(r.lines) {
		r.block()
	}
	return template.HTML(r.out.String()) //nolint:gosec // our own embedded text, escaped piece by piece
}

type renderer struct {
	lines  []string
	at     int
	lowest int // of the headings' levels
	out    strings.Builder
}

var (
	heading  = regexp.MustCompile(`^(#{1,6}) (.*)$`)
	item     = regexp.MustCompile(`^( *)([-*]|\d+\.) (.*)$`)
	notWords = regexp.MustCompile(`[^\p{L}\p{N}\- ]+`)
	inline   = regexp.MustCompile("`[^`]+`|\\*\\*[^*]+\\*\\*|\\[[^\\]]+\\]\\([^)\\s]+\\)")
	linked   = regexp.MustCompile(`^\[([^\]]+)\]\(([^)\s]+)\)$`)
)

func (r *renderer) block() {
	line := r.lines[r.at]
	switch {
	case strings.TrimSpace(line) == "":
		r.at++
	case strings.HasPrefix(strings.TrimSpace(line), "```"):
		r.code()
	case heading.MatchString(line):
		m := heading.FindStringSubmatch(line)
		level := max(len(m[1]), r.lowest)
		fmt.Fprintf(&r.out, "<h%d id=\"%s\">%s</h%d>\n", level, anchor(m[2]), spans(m[2]), level)
		r.at++
	case strings.HasPrefix(line, "|"):
		r.table()
	case item.MatchString(line):
		r.list()
	default:
		fmt.Fprintf(&r.out, "<p>%s</p>\n", spans(r.paragraph("")))
	}
}

// anchor is the fragment that GitHub gives a heading, so that links work in both places.
func anchor(title string) string {
	return strings.ReplaceAll(strings.ToLower(notWords.ReplaceAllString(title, "")), " ", "-")
}

func (r *renderer) code() {
	indent := strings.Index(r.lines[r.at], "`")
	r.out.WriteString("<pre tabindex=\"0\"><code>")
	for r.at++; r.at < len(r.lines) && !strings.HasPrefix(strings.TrimSpace(r.lines[r.at]), "```"); r.at++ {
		line := r.lines[r.at]
		r.out.WriteString(html.EscapeString(line[min(indent, len(line)-len(strings.TrimLeft(line, " "))):]) + "\n")
	}
	r.at++
	r.out.WriteString("</code></pre>\n")
}

// paragraph joins the lines that belong together.
func (r *renderer) paragraph(first string) string {
	parts := []string{first}
	if first == "" {
		parts = []string{strings.TrimSpace(r.lines[r.at])}
		r.at++
	}
	for ; r.at < len(r.lines); r.at++ {
		line := strings.TrimSpace(r.lines[r.at])
		if line == "" || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "```") || heading.MatchString(line) || item.MatchString(line) {
			break
		}
		parts = append(parts, line)
	}
	return strings.Join(parts, " ")
}

func (r *renderer) list() {
	kind := "ul"
	if m := item.FindStringSubmatch(r.lines[r.at]); m[2] != "-" && m[2] != "*" {
		kind = "ol"
	}
	r.out.WriteString("<" + kind + ">\n")
	for r.at < len(r.lines) {
		m := item.FindStringSubmatch(r.lines[r.at])
		if m == nil {
			break
		}
		r.at++
		fmt.Fprintf(&r.out, "<li>%s</li>\n", spans(r.paragraph(m[3])))
	}
	r.out.WriteString("</" + kind + ">\n")
}

func (r *renderer) table() {
	var rows [][]string
	for ; r.at < len(r.lines) && strings.HasPrefix(r.lines[r.at], "|"); r.at++ {
		rows = append(rows, cells(r.lines[r.at]))
	}
	r.out.WriteString("<div class=\"scroll\" role=\"group\" tabindex=\"0\" aria-label=\"Table\"><table><thead>\n")
	for i, row := range rows {
		if i == 1 { // the line of dashes
			r.out.WriteString("</thead><tbody>\n")
			continue
		}
		tag := "td"
		if i == 0 && strings.Join(row, "") != "" {
			tag = "th scope=\"col\""
		}
		r.out.WriteString("<tr>")
		for _, cell := range row {
			if cell == "" && strings.HasPrefix(tag, "th") {
				fmt.Fprint(&r.out, "<td></td>") // an empty heading says nothing to anybody
				continue
			}
			fmt.Fprintf(&r.out, "<%s>%s</%s>", tag, spans(cell), tag[:2])
		}
		r.out.WriteString("</tr>\n")
	}
	r.out.WriteString("</tbody></table></div>\n")
}

func cells(line string) []string {
	parts := strings.Split(strings.ReplaceAll(strings.Trim(strings.TrimSpace(line), "|"), `\|`, "\x00"), "|")
	for i, p := range parts {
		parts[i] = strings.TrimSpace(strings.ReplaceAll(p, "\x00", "|"))
	}
	return parts
}

func spans(text string) string {
	var b strings.Builder
	for text != "" {
		at := inline.FindStringIndex(text)
		if at == nil {
			b.WriteString(html.EscapeString(text))
			break
		}
		b.WriteString(html.EscapeString(text[:at[0]]))
		switch found := text[at[0]:at[1]]; found[0] {
		case '`':
			b.WriteString("<code>" + html.EscapeString(found[1:len(found)-1]) + "</code>")
		case '*':
			b.WriteString("<strong>" + spans(found[2:len(found)-2]) + "</strong>")
		default:
			m := linked.FindStringSubmatch(found)
			if to, ok := target(m[2]); ok {
				b.WriteString(`<a href="` + html.EscapeString(to) + `">` + spans(m[1]) + "</a>")
			} else {
				b.WriteString(spans(m[1]))
			}
		}
		text = text[at[1]:]
	}
	return b.String()
}

// target is where a link of a document leads when it is served by a deployment.
func target(href string) (string, bool) {
	file, fragment, _ := strings.Cut(href, "#")
	name := strings.TrimSuffix(path.Base(file), ".md")
	switch {
	case strings.HasPrefix(href, "#"), strings.HasPrefix(href, "https://"):
		return href, true
	case strings.HasSuffix(file, "openapi.yaml"):
		return "/openapi.yaml", true
	case !strings.Contains(file, "/") && slices.Contains(guideNames, name):
		to := "/docs/guides/" + name
		if fragment != "" {
			to += "#" + fragment
		}
		return to, true
	}
	return "", false
}
