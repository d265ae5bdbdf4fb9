package linktable

import "regexp"

// A spreadsheet evaluates a cell that begins like a formula, even after white space or in
// full-width characters. Titles may come from untrusted people, so SafeCell puts an apostrophe in
// front of such a cell to mark it as text. The pattern skips leading apostrophes, so PlainCell can
// recognise the added apostrophe.
var formula = regexp.MustCompile(`^'*[\s\p{Z}\x{feff}]*[=+\-@＝＋－＠\t\r]`)

// SafeCell returns a CSV cell that a spreadsheet shows as text.
func SafeCell(text string) string {
	if formula.MatchString(text) {
		return "'" + text
	}
	return text
}

// PlainCell undoes SafeCell, or the same protection added by another program.
func PlainCell(cell string) string {
	if cell != "" && cell[0] == '\'' && formula.MatchString(cell) {
		return cell[1:]
	}
	return cell
}
