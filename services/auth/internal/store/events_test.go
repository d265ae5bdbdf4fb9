package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// quiet lists the functions that write a record without an event, each with its reason. Every
// write has its event as an argument, so only a write with events.Quiet has no event.
var quiet = map[string]string{
	"account.Roll":           "one event describes both keys",
	"account.EndBy":          "only a restore calls it, and the new key of the roll, which an event would describe, is lost",
	"member.putRole":         "how a person signs in is not a record of an account",
	"member.takeBeyond":      "sign-in links are not shown anywhere",
	"member.UseLink":         "how a person signs in is not a record of an account",
	"member.byGroups":        "how a person signs in is not a record of an account, and the time of the group's confirmation is not visible",
	"member.open":            "the notice that a session shows to the member is not visible to others",
	"member.Connect":         "how a person signs in is not a record of an account",
	"member.AddPasskey":      "how a person signs in is not a record of an account",
	"member.RemovePasskey":   "how a person signs in is not a record of an account",
	"member.SignInByPasskey": "the last use of a passkey is not visible",
	"member.StartDevice":     "a program that waits for its key is not a record of an account",
	"member.DecideDevice":    "a program that waits for its key is not a record of an account",
	"member.CollectDevice":   "a program that waits for its key is not a record of an account",
	"tenancy.Settle":         "whether the other services know about a decision is not visible",
}

// TestEveryWriteHasItsEvent parses the code that changes accounts. Each function that writes
// a record without an event must be listed above with a reason.
func TestEveryWriteHasItsEvent(t *testing.T) {
	t.Parallel()
	left := map[string]bool{}
	for what := range quiet {
		left[what] = true
	}
	set := token.NewFileSet()
	for _, dir := range []string{"account", "member", "tenancy"} {
		files, err := filepath.Glob("../" + dir + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("found no source files in %s (error %v)", dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(f, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Quiet" {
						what := dir + "." + f.Name.Name
						if quiet[what] == "" {
							t.Errorf("%s writes a record without an event at %s", what, set.Position(s.Pos()))
						}
						delete(left, what)
					}
					return true
				})
			}
		}
	}
	for what := range left {
		t.Errorf("%s writes an event or no longer exists; remove its reason (%s)", what, quiet[what])
	}
}
