package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxLines is where a file most likely holds two ideas.
const maxLines = 700

// longFiles may be longer, for the reason given.
var longFiles = map[string]string{
	"internal/kernel/table_test.go": "one random test of one data structure: its naive twin, the walk and the cases that it found",
}

// skips are the functions that may skip a test, as file:function, for the reason given.
var skips = map[string]string{
	"testing/mutants/mutants_test.go:TestEachMutantIsFound": "builds and runs the tests once for each planted fault, which takes minutes: make mutants",
}

// clocks are the test files that may sleep or measure, for the reason given.
var clocks = map[string]string{
	"testing/mutants/mutants_test.go": "reports how fast a fault is found; nothing depends on it",
}

// generated is the mark of code that nobody reads.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func filesAreShort(t *tree) (out []finding) {
	used := map[string]bool{}
	for _, f := range t.files {
		if !slices.Contains([]string{".go", ".cc", ".h", ".sh"}, path.Ext(f.path)) || f.testdata() || generated.Match(f.text) {
			continue
		}
		if n := bytes.Count(f.text, []byte("\n")); n > maxLines {
			used[f.path] = true
			if longFiles[f.path] == "" {
				out = append(out, finding{f.path, 0, fmt.Sprintf("%d lines, more than %d, without a reason in testing/archtest/tidy.go", n, maxLines)})
			}
		}
	}
	return append(out, stale(longFiles, used)...)
}

// stale finds exceptions that nothing needs any more.
func stale(exceptions map[string]string, used map[string]bool) (out []finding) {
	for _, name := range slices.Sorted(maps.Keys(exceptions)) {
		if !used[name] {
			out = append(out, finding{name, 0, "does not need its exception in testing/archtest/tidy.go"})
		}
	}
	return out
}

// The files of this package state what others must not contain.
func (f *file) isLaw() bool { return f.pkg() == "testing/archtest" }

// grep finds a pattern in the text files that are not laws. Any match contains one of the words, which are found
// a hundred times faster.
func (t *tree) grep(pattern *regexp.Regexp, says string, anyOf ...string) (out []finding) {
	for _, f := range t.files {
		if f.isLaw() || !slices.ContainsFunc(anyOf, func(w string) bool { return bytes.Contains(f.text, []byte(w)) }) {
			continue
		}
		for i, line := range bytes.Split(f.text, []byte("\n")) {
			if m := pattern.FindSubmatch(line); m != nil {
				out = append(out, finding{f.path, i + 1, fmt.Sprintf(says, m[1])})
			}
		}
	}
	return out
}

var unfinished = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)

func noUnfinishedWork(t *tree) []finding {
	return t.grep(unfinished, "%s: finish it, or say what is and is not", "TODO", "FIXME", "XXX", "HACK")
}

var (
	// A path that only one machine has.
	machinePath = regexp.MustCompile(`(?:^|[^\w./\-])(/(?:root|work|home/\w+|Users/\w+)/[\w.\-]+)`)
	// A private host or address.
	privateHost = regexp.MustCompile(`://(?:[\w.\-]*@)?((?:10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.)[\d.]+|[\w\-.]+\.(?:internal|local|lan|corp|intranet))\b`)
	// A host that the ordinary client of a registry knows by itself.
	registryHost = regexp.MustCompile(`\b((?:proxy|sum)\.golang\.org|deb\.debian\.org|archive\.ubuntu\.com|registry\.npmjs\.org|files\.pythonhosted\.org)\b`)
)

func noMachines(t *tree) []finding {
	const says = "%s is a name that other machines do not have or need"
	return slices.Concat(
		t.grep(machinePath, says, "/root/", "/work/", "/home/", "/Users/"),
		t.grep(privateHost, says, "://"),
		t.grep(registryHost, says, ".golang.org", ".debian.org", ".ubuntu.com", ".npmjs.org", ".pythonhosted.org"),
	)
}

// calls yields the calls pkg.name(…) and value.name(…) of a file with the function that they stand in.
func (t *tree) calls(f *file, yield func(receiver, name, in string, line int)) {
	for _, d := range f.ast.Decls {
		in := ""
		if fn, ok := d.(*ast.FuncDecl); ok {
			in = fn.Name.Name
		}
		ast.Inspect(d, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok {
					yield(x.Name, sel.Sel.Name, in, t.fset.Position(call.Pos()).Line)
				}
			}
			return true
		})
	}
}

// noClockInTests: a test waits for conditions or in virtual time, and asserts no duration.
func noClockInTests(t *tree) (out []finding) {
	used := map[string]bool{}
	for _, f := range t.goFiles(true) {
		if !f.helper() {
			continue
		}
		t.calls(f, func(receiver, name, in string, line int) {
			if receiver != "time" || name != "Sleep" && name != "Since" || strings.HasPrefix(in, "Benchmark") {
				return
			}
			used[f.path] = true
			if clocks[f.path] == "" {
				out = append(out, finding{f.path, line, fmt.Sprintf("time.%s in a test", name)})
			}
		})
	}
	return append(out, stale(clocks, used)...)
}

func skipsHaveReasons(t *tree) (out []finding) {
	used := map[string]bool{}
	for _, f := range t.goFiles(true) {
		if !f.helper() {
			continue
		}
		t.calls(f, func(receiver, name, in string, line int) {
			if !slices.Contains([]string{"t", "b", "f", "tb"}, receiver) || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, name) {
				return
			}
			where := f.path + ":" + in
			used[where] = true
			if skips[where] == "" {
				out = append(out, finding{f.path, line, fmt.Sprintf("%s.%s in %s without a reason in testing/archtest/tidy.go", receiver, name, in)})
			}
		})
	}
	return append(out, stale(skips, used)...)
}

// packageDocumentation: one file of each package leads with one sentence a newcomer can repeat.
func packageDocumentation(t *tree) (out []finding) {
	docs, first := map[string]int{}, map[string]*file{}
	for _, f := range t.goFiles(true) {
		if f.test() {
			continue
		}
		if first[f.pkg()] == nil {
			first[f.pkg()] = f
		}
		if f.ast.Doc == nil {
			continue
		}
		docs[f.pkg()]++
		leads := []string{"Package " + f.ast.Name.Name + " "}
		if name := path.Base(f.pkg()); f.ast.Name.Name == "main" {
			leads = []string{"Command " + name + " ", strings.ToUpper(name[:1]) + name[1:] + " "}
		}
		if !slices.ContainsFunc(leads, func(lead string) bool { return strings.HasPrefix(f.ast.Doc.Text(), lead) }) {
			out = append(out, finding{f.path, t.fset.Position(f.ast.Doc.Pos()).Line, fmt.Sprintf("documentation does not begin with %q", leads[0])})
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(first)) {
		if n := docs[pkg]; n != 1 {
			out = append(out, finding{first[pkg].path, 0, fmt.Sprintf("package %s is documented in %d files instead of one", pkg, n)})
		}
	}
	return out
}
