package howto_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goFence = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestEveryCodeBlockIsCompiled holds the Go code of the pages, and of the README, against the files beside them, which
// the compiler and their tests keep right.
func TestEveryCodeBlockIsCompiled(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("pages are %q, %v", pages, err)
	}
	for page, code := range map[string]string{"../../README.md": "readme/*.go"} {
		checkFences(t, page, code)
	}
	for _, page := range pages {
		checkFences(t, page, "*_test.go")
	}
}

func checkFences(t *testing.T, page, code string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(code)
	if err != nil {
		t.Fatal(err)
	}
	var compiled strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		compiled.Write(b)
	}
	fences := goFence.FindAllStringSubmatch(string(text), -1)
	if len(fences) == 0 {
		t.Errorf("%s has no Go code", page)
	}
	for _, f := range fences {
		// A block may end a function early: what follows in the file is of no interest to the reader.
		if !strings.Contains(compiled.String(), strings.TrimSuffix(f[1], "}\n")) {
			t.Errorf("%s: none of %s has this code:\n%s", page, code, f[1])
		}
	}
}
