package search_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/search"
)

func TestWordsAreFolded(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"Straße  STRASSE":      {"strasse"},
		"Ｆｕｌｌ width":           {"full", "width"},
		"Crème-Brûlée_2.0":     {"creme", "brulee", "2", "0"},
		"İstanbul":             {"istanbul"},
		"ﬁne ½":                {"fine", "1", "2"},
		"日本語 テスト":              {"日本語", "テスト"},
		"":                     nil,
		"!?&":                  nil,
		"Ω ω ς Σ":              {"ω", "σ"},
		strings.Repeat("é", 3): {"eee"},
	} {
		if diff := cmp.Diff(want, search.Words(text)); diff != "" {
			t.Errorf("Words(%q): %s", text, diff)
		}
	}
}

func TestASCIIIsFoldedLikeEverythingElse(t *testing.T) {
	t.Parallel()
	var ascii []byte
	for c := range byte(0x80) {
		ascii = append(ascii, c)
	}
	// A single non-ASCII letter makes Fold use the code for all of Unicode.
	if got, want := search.Fold(string(ascii)), strings.TrimSuffix(search.Fold(string(ascii)+"é"), "e"); got != want {
		t.Errorf("Fold for ASCII = %q, want %q", got, want)
	}
}

func TestAQueryFindsWhatBeginsAWord(t *testing.T) {
	t.Parallel()
	words := search.Words("Spring sale 2026", "Für Gäste")
	for q, want := range map[string]bool{
		"": true, "?": true, "spring": true, "SPR sal": true, "pring": false, "gaste fur": true, "sale winter": false, "2026": true, "20267": false,
	} {
		if got := search.Parse(q).Matches(words); got != want {
			t.Errorf("Matches for the query %q = %v, want %v", q, got, want)
		}
	}
	if got := search.Parse("a spring in b").Rarest(); got != "spring" {
		t.Errorf("Rarest = %q, want spring", got)
	}
}

func TestEveryPrefixOfAWordFindsItsToken(t *testing.T) {
	t.Parallel()
	const word = "conversationnel"
	tokens := search.Tokens([]string{word}, 100)
	for n := 1; n <= len(word); n++ {
		token := search.Token(word[:n])
		if !cmp.Equal(true, contains(tokens, token)) {
			t.Errorf("the token %q of %q is not in the index %v", token, word[:n], tokens)
		}
	}
	if n := len(search.Tokens(search.Words("alpha beta gamma"), 4)); n != 4 {
		t.Errorf("got %d tokens, want 4", n)
	}
}

func contains(set []string, s string) bool {
	for _, x := range set {
		if x == s {
			return true
		}
	}
	return false
}
