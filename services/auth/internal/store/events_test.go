package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// quiet lists the functions that write a record without an event, with the reason for each.
// Every write takes its event as an argument, so only writes with events.Quiet do not have one.
var quiet = map[string]string{
	"account.Roll":           "one event describes both keys",
	"account.EndBy":          "only a restore calls it, and an event would describe the roll's new key, which is lost",
	"member.putRole":         "how a person signs in is not part of an account's records",
	"member.takeBeyond":      "sign-in links are not shown anywhere",
	"member.UseLink":         "how a person signs in is not part of an account's records",
	"member.byGroups":        "how a person signs in is not part of an account's records, and the time at which the groups were confirmed is not visible",
	"member.open":            "only the member sees the notice in the session",
	"member.Connect":         "how a person signs in is not part of an account's records",
	"member.AddPasskey":      "how a person signs in is not part of an account's records",
	"member.RemovePasskey":   "how a person signs in is not part of an account's records",
	"member.SignInByPasskey": "the last use of a passkey is not visible",
	"member.StartDevice":     "a program's request for a key is not part of an account's records",
	"member.DecideDevice":    "a program's request for a key is not part of an account's records",
	"member.CollectDevice":   "a program's request for a key is not part of an account's records",
	"tenancy.Settle":         "whether the other services have applied a decision is not visible",
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
		t.Errorf("%s no longer writes a record without an event; remove its reason (%s)", what, quiet[what])
	}
}
