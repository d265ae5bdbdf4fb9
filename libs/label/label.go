// Package label validates tags and external ids, which owners use to find their records. Links and
// videos share the rules, so a tag means the same for both.
package label

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Limits on tags and external ids.
const (
	MaxTags       = 20  // tags on one record, not counting duplicates
	MaxTag        = 50  // code points
	MaxExternalID = 255 // bytes of printable ASCII
)

// Key returns the same text for all spellings of a tag. It ignores case and differences
// between composed and decomposed Unicode.
func Key(tag string) string {
	return norm.NFC.String(cases.Fold().String(norm.NFC.String(strings.TrimSpace(tag))))
}

// Tags validates a record's tags. It trims the tags and drops duplicates. If a tag has several
// spellings, it keeps the first. field is the name of the field in the error details.
func Tags(field string, given []string) ([]string, []apierr.Detail) {
	tags := []string{}
	var bad []apierr.Detail
	seen := map[string]bool{}
	for i, tag := range given {
		tag = strings.TrimSpace(tag)
		if d := check(fmt.Sprintf("%s.%d", field, i), tag); d != nil {
			bad = append(bad, *d)
			continue
		}
		if k := Key(tag); !seen[k] {
			seen[k] = true
			tags = append(tags, tag)
		}
	}
	if len(tags) > MaxTags {
		bad = append(bad, apierr.Detail{Field: field, Code: apierr.TooLong, Message: fmt.Sprintf("Use at most %d tags.", MaxTags), Max: MaxTags})
	}
	return tags, bad
}

// Tag validates one tag, such as the tag in a filter.
func Tag(field, tag string) []apierr.Detail {
	if d := check(field, strings.TrimSpace(tag)); d != nil {
		return []apierr.Detail{*d}
	}
	return nil
}

func check(field, tag string) *apierr.Detail {
	switch n := utf8.RuneCountInString(tag); {
	case n == 0:
		return &apierr.Detail{Field: field, Code: apierr.TooShort, Message: "A tag needs at least one character.", Min: 1}
	case n > MaxTag:
		return &apierr.Detail{Field: field, Code: apierr.TooLong, Message: fmt.Sprintf("A tag can have at most %d characters.", MaxTag), Max: MaxTag}
	case !utf8.ValidString(tag), strings.ContainsRune(tag, ','), strings.ContainsFunc(tag, unicode.IsControl):
		return &apierr.Detail{Field: field, Code: apierr.InvalidValue, Message: "A tag cannot contain a comma or a control character."}
	}
	return nil
}

// ExternalID validates a record's id in another system.
func ExternalID(field, id string) []apierr.Detail {
	switch {
	case id == "":
		return []apierr.Detail{{Field: field, Code: apierr.TooShort, Message: "Use at least one character, or null for no id.", Min: 1}}
	case len(id) > MaxExternalID:
		message := fmt.Sprintf("Use at most %d characters.", MaxExternalID)
		return []apierr.Detail{{Field: field, Code: apierr.TooLong, Message: message, Max: MaxExternalID}}
	}
	for i := range len(id) {
		if id[i] < 0x20 || id[i] > 0x7e {
			return []apierr.Detail{{Field: field, Code: apierr.InvalidValue, Message: "Use printable ASCII characters."}}
		}
	}
	return nil
}

// Without returns the tags in some that are not in others.
func Without(some, others []string) []string {
	return slices.DeleteFunc(slices.Clone(some), func(tag string) bool {
		return slices.ContainsFunc(others, func(o string) bool { return Key(o) == Key(tag) })
	})
}
