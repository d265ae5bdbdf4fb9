package cli

import (
	"flag"
	"strings"
)

// nearest returns the word in known that the user probably meant by word, or "" if none of them is
// close. A close word differs by at most two letters, or by fewer if it is short.
func nearest(word string, known []string) string {
	if len(word) > 64 { // too long for a mistyped command
		return ""
	}
	best, least := "", 3
	for _, k := range known {
		if d := distance(word, k); d < least && d <= len(k)/3 {
			best, least = k, d
		}
	}
	return best
}

// distance counts insertions, deletions, replacements and swaps of neighbouring letters.
func distance(a, b string) int {
	s, t := []rune(a), []rune(b)
	rows := make([][]int, len(s)+1)
	for i := range rows {
		rows[i] = make([]int, len(t)+1)
		rows[i][0] = i
		for j := range t {
			if i == 0 {
				rows[0][j+1] = j + 1
				continue
			}
			cost := 1
			if s[i-1] == t[j] {
				cost = 0
			}
			rows[i][j+1] = min(rows[i-1][j+1]+1, rows[i][j]+1, rows[i-1][j]+cost)
			if i > 1 && j > 0 && s[i-1] == t[j-1] && s[i-2] == t[j] {
				rows[i][j+1] = min(rows[i][j+1], rows[i-2][j-1]+1)
			}
		}
	}
	return rows[len(s)][len(t)]
}

// unknown returns the error for words that are not a command. It suggests the command that the user
// probably meant.
func (p program) unknown(words []string) error {
	words = words[:min(3, len(words))]
	names := make([]string, 0, len(p.commands)+len(p.added)+len(others))
	for _, row := range p.rows() {
		names = append(names, row[0])
	}
	// Arguments may follow, so use the fewest words that are close to a command.
	for n := range words {
		given := strings.Join(words[:n+1], " ")
		if near := nearest(given, names); near != "" {
			return usagef("unknown command %q. Did you mean %q? `linkreel help` lists all commands", given, near)
		}
	}
	group := nearest(words[0], p.groups())
	switch {
	case p.has(words[0]):
		return usagef("unknown command %q; run `linkreel help %s`", strings.Join(words, " "), words[0])
	case group != "":
		return usagef("unknown command %q. Did you mean %q? Run `linkreel help %s`", words[0], group, group)
	}
	return usagef("unknown command %q; run `linkreel help`", strings.Join(words, " "))
}

// groups lists the first words of all commands.
func (p program) groups() (out []string) {
	for _, c := range p.commands {
		out = append(out, strings.Fields(c.name)[0])
	}
	return out
}

// unknownFlag adds the flag that the user probably meant to the error for an unknown flag.
func unknownFlag(err error, c command, fs *flag.FlagSet) error {
	const undefined = "flag provided but not defined: -"
	name, ok := strings.CutPrefix(err.Error(), undefined)
	if !ok {
		return usagef("%v; see linkreel %s --help", err, c.name)
	}
	var known []string
	fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	if near := nearest(name, known); near != "" {
		return usagef("there is no flag --%s. Did you mean --%s? See linkreel %s --help", name, near, c.name)
	}
	return usagef("there is no flag --%s; see linkreel %s --help", name, c.name)
}

// leading splits off the flags at the start of args that every command accepts. `linkreel --json
// links list` is the same as `linkreel links list --json`.
func leading(args []string) (flags, rest []string) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	new(app).globals(fs)
	for len(args) > 0 {
		name, _, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(args[0], "-"), "-"), "=")
		f := fs.Lookup(name)
		if f == nil || !strings.HasPrefix(args[0], "-") {
			break
		}
		n := 1
		if b, ok := f.Value.(interface{ IsBoolFlag() bool }); !hasValue && (!ok || !b.IsBoolFlag()) {
			n = 2 // its value is the next word
		}
		n = min(n, len(args))
		flags, args = append(flags, args[:n]...), args[n:]
	}
	return flags, args
}
