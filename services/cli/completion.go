package cli

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The scripts ask the program for completions, so they are never out of date.
var completions = map[string]string{
	"bash": `_linkreel() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -W "$(linkreel __complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _linkreel linkreel
`,
	"zsh": `#compdef linkreel
_linkreel() {
  local -a found
  found=(${(f)"$(linkreel __complete ${words[2,CURRENT-1]} 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
compdef _linkreel linkreel
`,
	"fish": `complete -c linkreel -a '(linkreel __complete (commandline -opc)[2..-1] 2>/dev/null)'
`,
}

func completion(env Env, args []string) error {
	if len(args) == 1 {
		if script, ok := completions[args[0]]; ok {
			_, err := io.WriteString(env.Out, script)
			return err
		}
	}
	return usagef("specify a shell: bash, zsh or fish")
}

// complete prints the words that may follow the given ones, one per line.
func (p program) complete(w io.Writer, before []string) {
	if c, _, ok := p.find(before); ok {
		fs, _ := new(app).prepare(c)
		fs.VisitAll(func(f *flag.Flag) { fmt.Fprintln(w, "--"+f.Name) })
		return
	}
	var next []string
	for _, c := range p.commands {
		words := strings.Fields(c.name)
		if len(words) > len(before) && slices.Equal(words[:len(before)], before) && !slices.Contains(next, words[len(before)]) {
			next = append(next, words[len(before)])
		}
	}
	if len(before) == 0 {
		for _, c := range p.added {
			next = append(next, c.Name)
		}
		for _, c := range others {
			next = append(next, c.name)
		}
	}
	for _, n := range next {
		fmt.Fprintln(w, n)
	}
}
