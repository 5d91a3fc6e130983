// Package archtest keeps the laws of this repository: which room may import which, what go.mod may name, and
// what no file may contain.
//
// The laws are tables: floors.go (rooms and imports), modules.go (libraries, cgo), tidy.go (files), docs.go
// (pages). Who breaks a law on purpose changes its table in the same commit, with the reason beside it.
package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// modulePath is the main module's; bench and test servers have modules of their own below it.
const modulePath = "github.com/millstream/millstream"

// A law is one rule and how to find who breaks it.
type law struct {
	name  string
	check func(*tree) []finding
}

var laws = []law{
	{"imports go down", importsGoDown},
	{"top level", topLevel},
	{"libraries", libraries},
	{"packages with few users", restricted},
	{"cgo behind its tag", cgoBehindTag},
	{"files are short", filesAreShort},
	{"no unfinished work", noUnfinishedWork},
	{"no sleeping or measuring in tests", noClockInTests},
	{"skips have reasons", skipsHaveReasons},
	{"no names of machines", noMachines},
	{"package documentation", packageDocumentation},
	{"one title a page", oneTitle},
	{"links resolve", linksResolve},
	{"linked code exists", linkedCodeExists},
	{"formats have pages", formatsHavePages},
}

// A finding is one place where a law is broken.
type finding struct {
	path string
	line int // 0: the whole file
	says string
}

func (f finding) String() string {
	if f.line == 0 {
		return fmt.Sprintf("%s: %s", f.path, f.says)
	}
	return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.says)
}

// A tree is the repository, read once.
type tree struct {
	files []*file
	names map[string]bool // every file and folder, also those that are not read
	fset  *token.FileSet
}

// A file is a text file. Its path is relative to the root, with slashes.
type file struct {
	path string
	text []byte
	ast  *ast.File // nil unless it is Go, outside of testdata
}

// maxText is the size above which a file is data, not text.
const maxText = 1 << 20

// load reads the tree below the root of fsys. Hidden folders other than .ci, and what the Makefile makes, are
// not part of it.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{names: map[string]bool{}, fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && name != "." && name != ".ci"
			if hidden || name == "bin" || name == "out" {
				return fs.SkipDir
			}
			t.names[name] = true
			return nil
		}
		if name == ".git" { // a file in a worktree
			return nil
		}
		t.names[name] = true
		if info, err := d.Info(); err != nil {
			return err
		} else if info.Size() > maxText || !info.Mode().IsRegular() {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		f := &file{path: name, text: text}
		if strings.HasSuffix(name, ".go") && !f.testdata() {
			if f.ast, err = parser.ParseFile(t.fset, name, text, parser.ParseComments); err != nil {
				return err
			}
		}
		t.files = append(t.files, f)
		return nil
	})
	return t, err
}

// pkg is the folder of the file, which is the path of its package without the module's.
func (f *file) pkg() string { return path.Dir(f.path) }

func (f *file) test() bool { return strings.HasSuffix(f.path, "_test.go") }

// helper says that the file is only ever part of tests.
func (f *file) helper() bool { return f.test() || strings.HasPrefix(f.path, "testing/") }

func (f *file) testdata() bool { return strings.Contains("/"+f.path, "/testdata/") }

// imports yields the imported paths of a Go file with their lines.
func (t *tree) imports(f *file, yield func(imported string, line int)) {
	for _, i := range f.ast.Imports {
		imported, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			continue // the parser has refused it
		}
		yield(imported, t.fset.Position(i.Pos()).Line)
	}
}

// goFiles returns the Go files of the main module, or of all modules.
func (t *tree) goFiles(nested bool) (out []*file) {
	for _, f := range t.files {
		if f.ast != nil && (nested || t.module(f.path) == ".") {
			out = append(out, f)
		}
	}
	return out
}

// module returns the folder of the go.mod that a file falls under.
func (t *tree) module(name string) string {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if t.names[dir+"/go.mod"] {
			return dir
		}
	}
	return "."
}

// matches says whether a package is named by one of the patterns, which are those of path.Match; a final "/..."
// stands for the folder and everything below it.
func matches(patterns []string, pkg string) bool {
	for _, p := range patterns {
		if root, all := strings.CutSuffix(p, "/..."); all {
			if pkg == root || strings.HasPrefix(pkg, root+"/") {
				return true
			}
		} else if ok, _ := path.Match(p, pkg); ok { // the patterns of the tables are tested to be well formed
			return true
		}
	}
	return false
}
