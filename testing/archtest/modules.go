package archtest

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"slices"
	"strings"
)

// A dependency is a module that go.mod names directly: one library a job.
type dependency struct {
	module string
	reason string
	users  []string // packages outside tests that import it; none: tests only
}

var dependencies = []dependency{
	{"github.com/apache/beam/sdks/v2", "the types of Beam's pipeline proto, which a plan is", []string{"sdk/plan"}},
	{"github.com/aws/aws-sdk-go-v2", "S3: signatures, retries", []string{"statebackend/storage/s3store"}},
	{"github.com/aws/aws-sdk-go-v2/config", "S3: where credentials, region and endpoint come from", []string{"statebackend/storage/s3store"}},
	{"github.com/aws/aws-sdk-go-v2/service/s3", "S3: the requests", []string{"statebackend/storage/s3store"}},
	{"github.com/aws/smithy-go", "S3: the codes of errors", []string{"statebackend/storage/s3store"}},
	{"github.com/dustin/go-humanize", "sizes and counts in flags and reports, as people write them", []string{"runners"}},
	{"github.com/google/go-cmp", "differences in tests that a reader understands", nil},
	{"github.com/linxGnu/grocksdb", "a second RocksDB binding, that tests check ours against", nil},
	{"github.com/parquet-go/parquet-go", "Parquet files", []string{"io/parquetio", "examples/flights/internal/..."}},
	{"github.com/tidwall/btree", "the ordered, copy-on-write map of the memory backend", []string{"statebackend/memory"}},
	{"github.com/zeebo/xxh3", "the hash that key groups are defined by", []string{"statebackend", "sdk/coder"}},
	{"go.yaml.in/yaml/v3", "Beam's files of reference encodings and of triggers are YAML", nil},
	{"golang.org/x/sync", "goroutines that end with the first error (errgroup)", []string{"statebackend/rocksdb"}},
	{"golang.org/x/term", "whether progress goes to somebody who watches", []string{"runners"}},
	{"google.golang.org/grpc", "control messages between coordinator and workers", []string{"runners/distributed/..."}},
	{"google.golang.org/protobuf", "the types of control messages, and plans as JSON", []string{"runners/distributed/control", "sdk/plan"}},
	{"pgregory.net/rapid", "random types, values, triggers and streams that shrink when they fail", nil},
}

// A restriction names the only packages that may import something, outside tests.
type restriction struct {
	imported string // a package, or with "/..." all below it
	reason   string
	users    []string
}

var restrictions = []restriction{
	{"C", "a program without rocksdb needs no C compiler", []string{"statebackend/rocksdb"}},
	{"unsafe", "memory safety is argued for in few places", []string{"runners/distributed/control", "internal/cell", "sdk/coder", "statebackend/rocksdb", "io/parquetio",
		"internal/kernel", // index.go reads an 8-byte key as a word, to hash it in one multiplication
	}},
	{"flag", "a library defines no flags; Main and programs do", []string{"runners", "runners/direct", "cmd/...", "examples/...", "docs/howto/...", "testing/..."}},
	{"github.com/apache/beam/...", "Beam's protos are one room's business", []string{"sdk/plan"}},
}

// libraries holds go.mod against the table of dependencies, both ways, and each import against its users.
func libraries(t *tree) (out []finding) {
	direct := map[string]int{}
	for _, f := range t.files {
		if f.path == "go.mod" {
			direct, out = parseGoMod(f)
		}
	}
	for module, line := range direct {
		if !slices.ContainsFunc(dependencies, func(d dependency) bool { return d.module == module }) {
			out = append(out, finding{"go.mod", line, fmt.Sprintf("requires %s without a reason in testing/archtest/modules.go", module)})
		}
	}
	for _, d := range dependencies {
		if _, ok := direct[d.module]; !ok {
			out = append(out, finding{"go.mod", 0, fmt.Sprintf("does not require %s, which testing/archtest/modules.go lists", d.module)})
		}
		out = append(out, t.importers(d.module+"/...", d.users, true)...)
	}
	return out
}

func restricted(t *tree) (out []finding) {
	for _, r := range restrictions {
		for _, f := range t.importers(r.imported, r.users, false) {
			f.says += ": " + r.reason
			out = append(out, f)
		}
	}
	return out
}

// importers finds the files that import a package and are neither tests nor of the users. If helpers is set the
// packages under testing/ count as tests.
func (t *tree) importers(imported string, users []string, helpers bool) (out []finding) {
	for _, f := range t.goFiles(false) {
		if f.test() || helpers && f.helper() || matches(users, f.pkg()) {
			continue
		}
		t.imports(f, func(i string, line int) {
			if matches([]string{imported}, i) && !(i == "unsafe" && onlySizes(f)) {
				out = append(out, finding{f.path, line, fmt.Sprintf("imports %s", i)})
			}
		})
	}
	return out
}

// onlySizes says that a file asks unsafe for nothing but the size of types, which is safe.
func onlySizes(f *file) bool {
	only := true
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "unsafe" && sel.Sel.Name != "Sizeof" {
				only = false
			}
		}
		return true
	})
	return only
}

// parseGoMod returns the modules that are required directly, with their lines. What makes a build differ for
// those who import the module, or is ignored for them, is a finding.
func parseGoMod(f *file) (direct map[string]int, out []finding) {
	direct = map[string]int{}
	block := ""
	for i, line := range strings.Split(string(f.text), "\n") {
		code, comment, _ := strings.Cut(line, "//")
		fields := strings.Fields(code)
		switch {
		case len(fields) == 0:
			continue
		case fields[0] == ")":
			block = ""
			continue
		case len(fields) == 2 && fields[1] == "(":
			block = fields[0]
			continue
		case block != "":
			fields = append([]string{block}, fields...)
		}
		switch fields[0] {
		case "module", "go", "toolchain":
		case "require":
			if len(fields) == 3 && strings.TrimSpace(comment) != "indirect" {
				direct[fields[1]] = i + 1
			}
		default:
			out = append(out, finding{f.path, i + 1, fmt.Sprintf("%s has no place in the go.mod of a library", fields[0])})
		}
	}
	return direct, out
}

const rocksPackage = modulePath + "/statebackend/rocksdb"

// cgoBehindTag: whoever needs RocksDB's C++ library, by cgo or through the backend's package, is built only with
// the tag rocksdb.
func cgoBehindTag(t *tree) (out []finding) {
	for _, f := range t.goFiles(true) {
		t.imports(f, func(imported string, line int) {
			if (imported == "C" || imported == rocksPackage) && !needsTag(f, "rocksdb") {
				out = append(out, finding{f.path, line, fmt.Sprintf("imports %s without //go:build rocksdb", imported)})
			}
		})
	}
	return out
}

// needsTag says that the file is not built without the tag, whatever else is set.
func needsTag(f *file, tag string) bool {
	for _, g := range f.ast.Comments {
		if g.Pos() > f.ast.Package {
			break
		}
		for _, c := range g.List {
			if !constraint.IsGoBuild(c.Text) {
				continue
			}
			x, err := constraint.Parse(c.Text)
			return err == nil && implies(x, tag)
		}
	}
	return false
}

// implies says that x cannot hold without the tag.
func implies(x constraint.Expr, tag string) bool {
	switch x := x.(type) {
	case *constraint.TagExpr:
		return x.Tag == tag
	case *constraint.AndExpr:
		return implies(x.X, tag) || implies(x.Y, tag)
	case *constraint.OrExpr:
		return implies(x.X, tag) && implies(x.Y, tag)
	default: // a negation says what must not be set
		return false
	}
}
