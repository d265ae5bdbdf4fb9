package link

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/idna"

	"github.com/linkreel/linkreel/libs/label"
	"github.com/linkreel/linkreel/libs/search"
)

// A search finds a link by its terms. A term is a short string that states one fact about the link.
// A query requests links that have all its terms, and the store answers it from indexes alone. Some
// prefixes of each word are terms too ([search.Tokens]), so a word in a query finds longer words
// that begin with it. The search looks up a word by its longest such prefix. It reads the links and
// drops those that match only the prefix.
const (
	// maxTerms limits the index entries of one link. An ordinary link has about 40. Without a
	// limit, an 8 KiB destination made of short words would have thousands.
	maxTerms = 1500
	// maxAsked limits how many words in a query the search looks up. It compares the other words
	// after reading the links.
	maxAsked = 12
)

// Words returns the folded words that a search can find the link by: the words in its slug, tags
// and title, and in its destination's host and path.
func (l *Link) Words() []string {
	host, path := hostAndPath(l.Destination.Location)
	texts := []string{string(l.Slug)}
	texts = append(texts, l.Tags...)
	texts = append(texts, l.Title, host)
	if unicodeHost, err := idna.ToUnicode(host); err == nil {
		texts = append(texts, unicodeHost)
	}
	return search.Words(append(texts, path)...)
}

// hostAndPath splits a URL in its standard form. The path is percent-decoded.
func hostAndPath(location string) (host, path string) {
	_, rest, _ := strings.Cut(location, "://")
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	host, path, _ = strings.Cut(rest, "/")
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	if strings.Contains(path, "%") {
		path = decoded(path)
	}
	return host, path
}

// decoded decodes the percent escapes in a path. Invalid escapes are kept. Bytes that are not valid
// UTF-8 become U+FFFD, which separates words.
func decoded(path string) string {
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

// The first letter of a term is its kind.
const (
	DomainTerm = "d" // followed by the domain's ID
	TagTerm    = "t" // followed by the key of a tag ([label.Key])
	slugTerm   = "s" // followed by a folded slug
	wordTerm   = "w" // followed by one of [search.Tokens]
)

var archivedTerm = map[bool]string{false: "a0", true: "a1"}

// Terms returns the set of the link's terms.
func (l *Link) Terms() map[string]bool {
	tokens := search.Tokens(l.Words(), maxTerms)
	terms := make(map[string]bool, 3+len(l.Tags)+len(tokens))
	terms[archivedTerm[l.Archived]], terms[DomainTerm+l.DomainID], terms[slugTerm+l.Slug.Folded()] = true, true, true
	for _, t := range l.Tags {
		terms[TagTerm+label.Key(t)] = true
	}
	for _, token := range tokens {
		terms[wordTerm+token] = true
	}
	return terms
}

// Top is a position before every link in a list.
const Top int64 = -1

// Query requests links in an account. A link must match all its filters.
type Query struct {
	AccountID string
	Before    int64 // a Seq, or [Top]; only older links are listed
	Limit     int
	// Whole requests every field. Without it, the store reads only the fields that lists need.
	Whole bool
	// Broken also requests links that cannot be read; see [Link.Broken].
	Broken bool

	Words      []string // folded; each must be a prefix of one of the link's words
	Tags       []string
	DomainID   *string // "" is the default host
	Slug       string  // folded
	ExternalID string
	Archived   *bool
}

// Terms returns the terms that every matching link has. A query without terms matches all links.
func (q Query) Terms() []string {
	var terms []string
	if q.Archived != nil {
		terms = append(terms, archivedTerm[*q.Archived])
	}
	if q.DomainID != nil {
		terms = append(terms, DomainTerm+*q.DomainID)
	}
	if q.Slug != "" {
		terms = append(terms, slugTerm+q.Slug)
	}
	for _, t := range q.Tags {
		terms = append(terms, TagTerm+label.Key(t))
	}
	for _, w := range q.asked() {
		terms = append(terms, wordTerm+search.Token(w))
	}
	slices.Sort(terms)
	return slices.Compact(terms)
}

// asked returns the words that the search looks up. It selects the longest words because they are
// the rarest.
func (q Query) asked() []string {
	words := slices.Clone(q.Words)
	slices.SortStableFunc(words, func(a, b string) int { return len(b) - len(a) })
	return words[:min(len(words), maxAsked)]
}

// Rest returns the part of the query that the terms do not cover: words that are longer than their
// terms, and words that the search does not look up.
func (q Query) Rest() Query {
	asked := q.asked()
	open := slices.DeleteFunc(slices.Clone(q.Words), func(w string) bool { return search.Token(w) == w && slices.Contains(asked, w) })
	return Query{AccountID: q.AccountID, Before: q.Before, Words: open}
}

// Matches reports whether the link matches the query.
func (q Query) Matches(l *Link) bool {
	switch {
	case l.AccountID != q.AccountID, q.Before != Top && l.Seq >= q.Before,
		q.Archived != nil && l.Archived != *q.Archived, q.DomainID != nil && l.DomainID != *q.DomainID,
		q.Slug != "" && l.Slug.Folded() != q.Slug, q.ExternalID != "" && l.ExternalID != q.ExternalID,
		len(label.Without(q.Tags, l.Tags)) > 0:
		return false
	}
	return len(q.Words) == 0 || search.Begin(l.Words(), q.Words)
}
