package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// quiet are the functions that write a record without an event, each with its reason. A
// write cannot forget its event, since the event is an argument. It can only pass
// events.Quiet.
var quiet = map[string]string{
	"account.Roll":           "one event tells of both keys",
	"member.putRole":         "how somebody signs in is no record of an account",
	"member.takeBeyond":      "a sign-in link shows nowhere",
	"member.UseLink":         "how somebody signs in is no record of an account",
	"member.byGroups":        "how somebody signs in is no record of an account, and when a group was confirmed does not show",
	"member.open":            "what a session tells the member does not show",
	"member.Connect":         "how somebody signs in is no record of an account",
	"member.AddPasskey":      "how somebody signs in is no record of an account",
	"member.RemovePasskey":   "how somebody signs in is no record of an account",
	"member.SignInByPasskey": "when a passkey was used does not show",
	"member.StartDevice":     "a program that waits for its key is no record of an account",
	"member.DecideDevice":    "a program that waits for its key is no record of an account",
	"member.CollectDevice":   "a program that waits for its key is no record of an account",
	"tenancy.Settle":         "that the other services know of a decision does not show",
}

// TestEveryWriteHasItsEvent reads the code that changes accounts. Each function that
// writes a record without an event must be listed above with a reason.
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
			t.Fatalf("no source in %s: %v", dir, err)
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
		t.Errorf("%s has its event now, or is gone: it needs no reason (%s)", what, quiet[what])
	}
}
