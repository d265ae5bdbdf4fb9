package link

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/linkreel/linkreel/libs/apierr"
)

// Longest texts, in Unicode code points.
const (
	MaxTitle       = 500
	MaxOGTitle     = 500  // ogTitle
	MaxDescription = 1000 // ogDescription
)

// CheckText accepts text of at most limit code points without NUL; it is kept to
// the letter. Half a surrogate pair cannot be in a Go string from JSON: whoever
// decodes refuses it before.
func CheckText(text string, limit int) *apierr.Detail {
	switch {
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return &apierr.Detail{Code: apierr.InvalidValue, Message: "The text contains a NUL or broken character."}
	case utf8.RuneCountInString(text) > limit:
		return &apierr.Detail{Code: apierr.TooLong, Message: fmt.Sprintf("Use at most %d characters.", limit), Max: int64(limit)}
	}
	return nil
}
