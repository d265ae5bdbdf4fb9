// Package search turns text into the words that a search compares: what people
// type must find what was written, whatever its case, accents or width.
//
// It holds no index. A store keeps the [Tokens] of a record's texts in a field
// that its database can look up by membership, asks for the [Token] of the
// rarest word of a query, and lets a [Query] decide on what comes back: a token
// is a prefix of bounded length, so it finds more than the word does.
package search

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// MaxWords bounds the words of a query that are looked at.
const MaxWords = 10

// Fold writes s in the form that searches compare: NFKD without marks, in full
// case folding, so that "Straße", "STRASSE" and fullwidth letters are the same.
func Fold(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) { // as in most texts
		return strings.ToLower(s)
	}
	// Folding can yield marks again (İ becomes i and a dot), so they go last.
	folded := norm.NFKD.String(cases.Fold().String(norm.NFKD.String(s)))
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, folded)
}

// Words lists the distinct folded words of texts, in order. A word is a run of
// letters and digits.
func Words(texts ...string) []string {
	var words []string
	seen := map[string]bool{}
	for _, text := range texts {
		for _, w := range strings.FieldsFunc(Fold(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) }) {
			if !seen[w] {
				seen[w] = true
				words = append(words, w)
			}
		}
	}
	return words
}

// lengths are the prefix lengths, in code points, that are indexed. Longer words
// are found by their first eight, and the few others that share those are sorted
// out afterwards; every further length would make each write dearer.
var lengths = []int{1, 2, 3, 4, 6, 8}

// Tokens lists what to index for words: their prefixes of a few lengths. At most
// limit are given, those of the first words.
func Tokens(words []string, limit int) []string {
	var tokens []string
	seen := map[string]bool{}
	for _, w := range words {
		runes := []rune(w)
		for _, n := range lengths {
			if n > len(runes) {
				break
			}
			if t := string(runes[:n]); !seen[t] && len(tokens) < limit {
				seen[t] = true
				tokens = append(tokens, t)
			}
		}
	}
	return tokens
}

// Token is the indexed prefix that every record with a word beginning with word
// has: the longest there is, since it finds the fewest others.
func Token(word string) string {
	runes := []rune(word)
	longest := 0
	for _, n := range lengths {
		if n <= len(runes) {
			longest = n
		}
	}
	return string(runes[:longest])
}

// Query is what somebody looks for.
type Query struct{ words []string }

// Parse reads a query. One without any word matches everything.
func Parse(q string) Query {
	words := Words(q)
	return Query{words[:min(len(words), MaxWords)]}
}

// Words are the words that all have to begin a word of the text.
func (q Query) Words() []string { return q.words }

// Rarest is the word that most likely finds the fewest records: the longest.
// It is "" when the query has no word.
func (q Query) Rarest() string {
	if len(q.words) == 0 {
		return ""
	}
	return slices.MaxFunc(q.words, func(a, b string) int { return utf8.RuneCountInString(a) - utf8.RuneCountInString(b) })
}

// Matches reports whether each word of the query begins one of words, which are
// folded.
func (q Query) Matches(words []string) bool { return Begin(words, q.words) }

// Begin reports whether each word of a query begins one of words; all are folded.
func Begin(words, query []string) bool {
	for _, w := range query {
		if !slices.ContainsFunc(words, func(have string) bool { return strings.HasPrefix(have, w) }) {
			return false
		}
	}
	return true
}
