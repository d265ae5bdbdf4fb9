// Package search converts text to the words that a search compares. A search ignores case, accents
// and width.
//
// It has no index. A store writes the [Tokens] of a record's text to a field that its database can
// query by membership. For a search, it queries for the [Token] of the query's rarest word and
// filters the results with the [Query]. The filter is required because a token is a prefix of
// limited length and matches more records than the word.
package search

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// MaxWords is the maximum number of words in a query. Any further words are ignored.
const MaxWords = 10

// Fold returns the form of s that searches compare: NFKD without marks, with full case folding, so
// that "Straße", "STRASSE" and their fullwidth forms are equal.
func Fold(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) { // the usual case
		return strings.ToLower(s)
	}
	// Folding can reintroduce marks (İ becomes i and a dot), so remove marks last.
	folded := norm.NFKD.String(cases.Fold().String(norm.NFKD.String(s)))
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, folded)
}

// Words returns the distinct folded words of the given strings, in order. A word is a sequence of
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

// lengths are the indexed prefix lengths, in code points. A longer word is found by its first eight
// code points, and other words with the same first eight are filtered out. More lengths would make
// every write more expensive.
var lengths = []int{1, 2, 3, 4, 6, 8}

// Tokens returns the tokens to index for words: their prefixes of these lengths. It returns at most
// limit tokens and prefers those for the first words.
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

// Token returns the longest indexed prefix of word. Every record with a word that begins with word
// has this token, and the longest prefix matches the fewest other records.
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

// Query is a parsed search query.
type Query struct{ words []string }

// Parse reads a query. A query without words matches everything.
func Parse(q string) Query {
	words := Words(q)
	return Query{words[:min(len(words), MaxWords)]}
}

// Words returns the query's words. Each must be a prefix of a word in the text.
func (q Query) Words() []string { return q.words }

// Rarest returns the word that probably matches the fewest records, which is the longest word, or
// "" if the query has no words.
func (q Query) Rarest() string {
	if len(q.words) == 0 {
		return ""
	}
	return slices.MaxFunc(q.words, func(a, b string) int { return utf8.RuneCountInString(a) - utf8.RuneCountInString(b) })
}

// Matches reports whether each word in the query is a prefix of one of words, which must be folded.
func (q Query) Matches(words []string) bool { return Begin(words, q.words) }

// Begin reports whether each word in query is a prefix of one of words. All must be folded.
func Begin(words, query []string) bool {
	for _, w := range query {
		if !slices.ContainsFunc(words, func(have string) bool { return strings.HasPrefix(have, w) }) {
			return false
		}
	}
	return true
}
