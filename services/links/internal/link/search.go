package link

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/linkreel/linkreel/libs/label"
	"github.com/linkreel/linkreel/libs/search"
)

// A link is found through terms: short texts, each of which says one thing that is
// true of it. A query asks for links that have all of some terms, and the store
// answers that from indexes alone, so that it reads only links that match. For a
// word to find what begins with it, each beginning of each word is a term.
const (
	// longestTerm is the longest beginning of a word that is a term, in code points.
	// A longer word of a query is compared again once its links are read.
	longestTerm = 24
	// maxTerms bounds the index entries of one link. An ordinary link has about 80;
	// without a bound a destination of 8 KiB of short words would have thousands.
	maxTerms = 1500
	// maxAsked bounds the words of a query that are looked up; the others are compared
	// once the links are read.
	maxAsked = 12
)

// Words are the folded words by which a link is found: those of its slug, tags and
// title, and of its destination's host and path.
func (l *Link) Words() []string {
	host, path := hostAndPath(l.Destination.Location)
	texts := []string{l.Slug.String()}
	texts = append(texts, l.Tags...)
	texts = append(texts, l.Title, host)
	if unicodeHost, err := idna.ToUnicode(host); err == nil {
		texts = append(texts, unicodeHost)
	}
	return search.Words(append(texts, path)...)
}

// hostAndPath splits an address in its standard form. The path is percent-decoded.
func hostAndPath(location string) (host, path string) {
	_, rest, _ := strings.Cut(location, "://")
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	host, path, _ = strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	return host, decoded(path)
}

// decoded replaces the percent signs of a path that stand for bytes; one that
// stands for nothing stays, and bytes that are no text separate words.
func decoded(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	out := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			if b, err := strconv.ParseUint(path[i+1:i+3], 16, 8); err == nil {
				out = append(out, byte(b))
				i += 2
				continue
			}
		}
		out = append(out, path[i])
	}
	return strings.ToValidUTF8(string(out), "\uFFFD")
}

// The terms of a link, apart from those of its words.
func tagTerm(tag string) string         { return "t" + label.Key(tag) }
func domainTerm(domainID string) string { return "d" + domainID }
func slugTerm(folded string) string     { return "s" + folded }

func archivedTerm(archived bool) string {
	if archived {
		return "a1"
	}
	return "a0"
}

func wordTerm(word string) string {
	n := 0
	for i := range word {
		if n == longestTerm {
			return "w" + word[:i]
		}
		n++
	}
	return "w" + word
}

// Terms are all terms of the link.
func (l *Link) Terms() []string {
	terms := []string{archivedTerm(l.Archived), domainTerm(l.DomainID), slugTerm(l.Slug.Folded())}
	for _, t := range l.Tags {
		terms = append(terms, tagTerm(t))
	}
	seen := map[string]bool{}
	for _, word := range l.Words() {
		w, n := "w"+word, 0
		for i := range w + " " { // after each code point
			if i < 2 {
				continue
			}
			if n++; n > longestTerm || len(seen) >= maxTerms {
				break
			}
			if t := w[:i]; !seen[t] {
				seen[t] = true
				terms = append(terms, t)
			}
		}
	}
	return terms
}

// Top is before every link in a list.
const Top int64 = -1

// Query asks for links of an account. Its filters must all hold.
type Query struct {
	AccountID string
	Before    int64 // a Seq, or [Top]; what is listed is below it
	Limit     int
	// Whole asks for every field; a list shows fewer, and reads fewer.
	Whole bool

	Words      []string // folded; each begins a word of the link
	Tags       []string
	DomainID   *string // "" is the default host
	Slug       string  // folded
	ExternalID string
	Archived   *bool
}

// Terms are terms that every link has which the query asks for. A query without
// any asks for all links.
func (q Query) Terms() []string {
	var terms []string
	if q.Archived != nil {
		terms = append(terms, archivedTerm(*q.Archived))
	}
	if q.DomainID != nil {
		terms = append(terms, domainTerm(*q.DomainID))
	}
	if q.Slug != "" {
		terms = append(terms, slugTerm(q.Slug))
	}
	for _, t := range q.Tags {
		terms = append(terms, tagTerm(t))
	}
	// The longest words are the rarest, and so narrow the search best.
	words := slices.Clone(q.Words)
	slices.SortStableFunc(words, func(a, b string) int { return len(b) - len(a) })
	for _, w := range words[:min(len(words), maxAsked)] {
		terms = append(terms, wordTerm(w))
	}
	slices.Sort(terms)
	return slices.Compact(terms)
}

// Matches reports whether the query asks for the link.
func (q Query) Matches(l *Link) bool {
	switch {
	case l.AccountID != q.AccountID, q.Before != Top && l.Seq >= q.Before,
		q.Archived != nil && l.Archived != *q.Archived, q.DomainID != nil && l.DomainID != *q.DomainID,
		q.Slug != "" && l.Slug.Folded() != q.Slug, q.ExternalID != "" && l.ExternalID != q.ExternalID:
		return false
	}
	for _, t := range q.Tags {
		if !hasTag(l.Tags, t) {
			return false
		}
	}
	words := l.Words()
	for _, w := range q.Words {
		if !slices.ContainsFunc(words, func(have string) bool { return strings.HasPrefix(have, w) }) {
			return false
		}
	}
	return true
}

func hasTag(tags []string, tag string) bool {
	key := label.Key(tag)
	return slices.ContainsFunc(tags, func(t string) bool { return label.Key(t) == key })
}

// without are the tags that other does not have.
func without(tags, other []string) []string {
	return slices.DeleteFunc(slices.Clone(tags), func(t string) bool { return hasTag(other, t) })
}
