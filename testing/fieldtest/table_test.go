package fieldtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed are the cases that the table has, and rules the groups of which it has a property.
const (
	listed = "A1 A3 B1 B3 B5 C1 C3 C5 C7 D1 D3 E1 E3 E5 F1 F3 F5 G1 G3 G5 H1 H4 H6 H7 I1 I3"
	rules  = "A B C D E F G H I"
)

// TestTableIsTrue: each test that the table of this package names exists, and those of this package run where it says.
func TestTableIsTrue(t *testing.T) {
	files := token.NewFileSet()
	doc, err := parser.ParseFile(files, "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	here, elsewhere := calls(t, files), functions(t)
	cases, properties := []string{}, []string{}
	for line := range strings.Lines(doc.Doc.Text()) {
		row, isRow := strings.CutPrefix(line, "\t")
		if !isRow {
			continue
		}
		cells := strings.Split(strings.TrimSpace(row), " | ")
		if len(cells) != 4 || cells[1] == "" {
			t.Errorf("not a row of four cells: %s", row)
			continue
		}
		id, names, where := cells[0], strings.Split(cells[2], ", "), cells[3]
		if where == "property" {
			properties = append(properties, id)
		} else if len(id) > 1 {
			cases = append(cases, id)
		}
		for _, name := range names {
			if strings.Contains(name, ".") && !elsewhere[name] || !strings.Contains(name, ".") && here[name] == nil {
				t.Errorf("%s: there is no %s", id, name)
			}
		}
		// What its first test must call to run where the row says.
		must, ok := map[string]string{"both": "everywhere", "direct": "directly", "property": "", "construction": "Try"}[where]
		if !ok {
			t.Errorf("%s: where is %q?", id, where)
		}
		if must != "" && !here[names[0]][must] {
			t.Errorf("%s: %s does not call %s", id, names[0], must)
		}
		if where == "direct" && here[names[0]]["everywhere"] {
			t.Errorf("%s: %s runs on both", id, names[0])
		}
	}
	if got := strings.Join(cases, " "); got != listed {
		t.Errorf("the table has the cases\n%s, not\n%s", got, listed)
	}
	if got := strings.Join(slices.Compact(properties), " "); got != rules {
		t.Errorf("the table has properties of %s, not %s", got, rules)
	}
}

// calls are the tests of this package, and the names of functions that each calls.
func calls(t *testing.T, files *token.FileSet) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	names, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			called := map[string]bool{}
			ast.Inspect(fn, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch f := call.Fun.(type) {
				case *ast.Ident:
					called[f.Name] = true
				case *ast.SelectorExpr:
					called[f.Sel.Name] = true
				}
				return true
			})
			out[fn.Name.Name] = called
		}
	}
	return out
}

// functions are the functions of all packages, as folder.Name.
func functions(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(src)) {
			if rest, ok := strings.CutPrefix(line, "func "); ok {
				if name, _, ok := strings.Cut(rest, "("); ok && name != "" {
					out[fmt.Sprint(filepath.Base(filepath.Dir(path)), ".", name)] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
