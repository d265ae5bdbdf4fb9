package store_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// eventOf is what begins the names of the events that tell of a write to a
// transaction. A write that changes nothing the API shows has none.
var eventOf = map[string]string{
	"AddAccount": "", "PutAccount": "Account", "AddKey": "Key", "PutKey": "Key",
	"PutMember": "Member", "RemoveMember": "Member", "AddLink": "Invitation|SignInLink", "RemoveLink": "Invitation|SignInLink",
	"AddSession": "Session", "EndSession": "Session",
	// An account that is made has no feed yet. How somebody signs in, a program that
	// waits for its key, and what was used once are no records of an account.
	"AddIdentity": "", "PutPasskey": "", "RemovePasskey": "", "PutDevice": "", "RemoveDevice": "", "UseOnce": "",
}

// TestEveryWriteHasItsEvent reads the code that changes accounts: whoever adds a
// write to a transaction without the event that tells of it fails here.
func TestEveryWriteHasItsEvent(t *testing.T) {
	t.Parallel()
	untold := map[string]string{}
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
				switch d := decl.(type) {
				case *ast.FuncDecl:
					writes, notes := ofTransaction(d)
					for _, w := range writes {
						if kind := eventOf[w]; kind != "" && !slices.ContainsFunc(notes, func(n string) bool {
							return slices.ContainsFunc(strings.Split(kind, "|"), func(k string) bool { return strings.HasPrefix(n, k) })
						}) {
							untold[dir+"."+d.Name.Name+" "+w] = set.Position(d.Pos()).String()
						}
					}
				case *ast.GenDecl:
					for _, w := range writesOf(d) {
						if _, ok := eventOf[w]; !ok {
							t.Errorf("%s: say in eventOf which event tells of it", w)
						}
					}
				}
			}
		}
	}
	const version = "moves the account's version on, which the API does not show"
	for what, reason := range map[string]string{
		"account.tell PutAccount": "notes that the holders know of a suspension", "account.Revoke PutAccount": version, "account.Roll PutAccount": version,
		"member.putRole PutAccount": version, "member.remove PutAccount": version, "member.begin PutAccount": version, "member.End PutAccount": version,
		"member.endLapsed PutAccount": version, "member.open PutMember": "notes what a session tells the member, which the API does not show",
	} {
		if untold[what] == "" {
			t.Errorf("%s has its event now, or is gone: it needs no exception (%s)", what, reason)
		}
		delete(untold, what)
	}
	for what, at := range untold {
		t.Errorf("%s at %s writes no event", what, at)
	}
}

// ofTransaction lists what a function writes to its tx, and the events it notes.
func ofTransaction(d *ast.FuncDecl) (writes, notes []string) {
	ast.Inspect(d, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		f, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if on, ok := f.X.(*ast.Ident); !ok || on.Name != "tx" {
			return true
		}
		if _, ok := eventOf[f.Sel.Name]; ok {
			writes = append(writes, f.Sel.Name)
		}
		if f.Sel.Name == "Note" {
			if what, ok := call.Args[1].(*ast.SelectorExpr); ok {
				notes = append(notes, what.Sel.Name)
			}
		}
		return true
	})
	return writes, notes
}

// writesOf lists the methods of an interface Tx that write: those that return an
// error alone.
func writesOf(d *ast.GenDecl) (names []string) {
	for _, spec := range d.Specs {
		ts, ok := spec.(*ast.TypeSpec)
		if !ok || ts.Name.Name != "Tx" {
			continue
		}
		i, ok := ts.Type.(*ast.InterfaceType)
		if !ok {
			continue
		}
		for _, m := range i.Methods.List {
			f, ok := m.Type.(*ast.FuncType)
			if ok && len(m.Names) == 1 && m.Names[0].Name != "Note" && f.Results != nil && len(f.Results.List) == 1 {
				names = append(names, m.Names[0].Name)
			}
		}
	}
	return names
}
