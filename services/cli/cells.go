package cli

import "regexp"

// A spreadsheet runs a cell that begins like a formula, also behind white space and
// in the wide forms of East Asian keyboards. Titles may come from strangers, so what
// we write gets an apostrophe before it, which spreadsheets take as "this is text".
// Leading apostrophes are looked through, so that plainCell always knows which
// apostrophe is ours.
var formula = regexp.MustCompile(`^'*[\s\p{Z}\x{feff}]*[=+\-@＝＋－＠\t\r]`)

// safeCell is a cell for a CSV file that a spreadsheet will show as it is.
func safeCell(text string) string {
	if formula.MatchString(text) {
		return "'" + text
	}
	return text
}

// plainCell undoes safeCell. A cell that other programs protected in this way is
// read as they meant it.
func plainCell(cell string) string {
	if cell != "" && cell[0] == '\'' && formula.MatchString(cell) {
		return cell[1:]
	}
	return cell
}
