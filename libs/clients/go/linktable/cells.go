package linktable

import "regexp"

// A spreadsheet runs a cell that begins like a formula, even after white space and in the
// wide forms of East Asian keyboards. Titles may come from strangers, so we put an
// apostrophe before such a cell, which spreadsheets read as "this is text". The pattern
// skips leading apostrophes, so that PlainCell can tell which apostrophe is ours.
var formula = regexp.MustCompile(`^'*[\s\p{Z}\x{feff}]*[=+\-@＝＋－＠\t\r]`)

// SafeCell returns a CSV cell that a spreadsheet shows as text.
func SafeCell(text string) string {
	if formula.MatchString(text) {
		return "'" + text
	}
	return text
}

// PlainCell undoes SafeCell. It also undoes the same protection by other programs.
func PlainCell(cell string) string {
	if cell != "" && cell[0] == '\'' && formula.MatchString(cell) {
		return cell[1:]
	}
	return cell
}
