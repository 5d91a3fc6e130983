package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// pages returns the Markdown files.
func (t *tree) pages() (out []*file) {
	for _, f := range t.files {
		if path.Ext(f.path) == ".md" {
			out = append(out, f)
		}
	}
	return out
}

// prose yields the lines of a page outside of code, fenced or indented.
func (f *file) prose(yield func(line string, number int)) {
	fence := ""
	for i, line := range strings.Split(string(f.text), "\n") {
		mark := strings.TrimLeft(line, " ")
		switch {
		case fence != "":
			if strings.HasPrefix(mark, fence) {
				fence = ""
			}
		case strings.HasPrefix(mark, "```"), strings.HasPrefix(mark, "~~~"):
			fence = mark[:3]
		case strings.HasPrefix(line, "    "), strings.HasPrefix(line, "\t"):
		default:
			yield(line, i+1)
		}
	}
}

// titles returns the lines of a page that begin with n marks.
func (f *file) titles(level string) (out []string) {
	f.prose(func(line string, _ int) {
		if title, ok := strings.CutPrefix(line, level+" "); ok {
			out = append(out, title)
		}
	})
	return out
}

func oneTitle(t *tree) (out []finding) {
	for _, f := range t.pages() {
		if n := len(f.titles("#")); n != 1 {
			out = append(out, finding{f.path, 0, fmt.Sprintf("has %d titles (# …) instead of one", n)})
		}
	}
	return out
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)(?: "[^"]*")?\)`)
	codeSpan = regexp.MustCompile("`[^`]*`")
)

// linksResolve follows links between files, and to sections of pages. It does not go to the network.
func linksResolve(t *tree) (out []finding) {
	pages := map[string]*file{}
	for _, f := range t.pages() {
		pages[f.path] = f
	}
	for _, f := range t.pages() {
		f.prose(func(line string, number int) {
			for _, m := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, ""), -1) {
				target, section, _ := strings.Cut(m[1], "#")
				if strings.Contains(target, ":") { // another scheme
					continue
				}
				name := f.path
				if target != "" {
					name = path.Join(path.Dir(f.path), target)
				}
				if !t.names[name] {
					out = append(out, finding{f.path, number, fmt.Sprintf("links to %s, which does not exist", m[1])})
				} else if page := pages[name]; page != nil && section != "" && !page.hasSection(section) {
					out = append(out, finding{f.path, number, fmt.Sprintf("links to %s, but that page has no such section", m[1])})
				}
			}
		})
	}
	return out
}

// hasSection says whether a page has a title with the anchor that GitHub gives it.
func (f *file) hasSection(anchor string) bool {
	for _, level := range []string{"#", "##", "###", "####"} {
		for _, title := range f.titles(level) {
			if slug(title) == anchor {
				return true
			}
		}
	}
	return false
}

func slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, strings.TrimSpace(title))
}

var codeLink = regexp.MustCompile("\\[`(\\w+)\\.(\\w+)`\\]\\(([^)#\\s]+\\.go)\\)")

// linkedCodeExists: a link from `package.Name` to a Go file finds the name there.
func linkedCodeExists(t *tree) (out []finding) {
	sources := map[string]*file{}
	for _, f := range t.goFiles(true) {
		sources[f.path] = f
	}
	for _, f := range t.pages() {
		f.prose(func(line string, number int) {
			for _, m := range codeLink.FindAllStringSubmatch(line, -1) {
				source := sources[path.Join(path.Dir(f.path), m[3])]
				if source != nil && (source.ast.Name.Name != m[1] || !source.declares(m[2])) {
					out = append(out, finding{f.path, number, fmt.Sprintf("%s.%s is not in %s", m[1], m[2], m[3])})
				}
			}
		})
	}
	return out
}

// declares says whether a Go file has a type, function, variable or constant at its top level.
func (f *file) declares(name string) bool {
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == name {
				return true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.Name == name {
						return true
					}
				case *ast.ValueSpec:
					if slices.ContainsFunc(s.Names, func(n *ast.Ident) bool { return n.Name == name }) {
						return true
					}
				}
			}
		}
	}
	return false
}

var formatPage = regexp.MustCompile(`docs/format/[\w.\-]+\.md`)

// formatsHavePages: what code writes is described, and what is described is named by the code that writes it.
func formatsHavePages(t *tree) (out []finding) {
	named := map[string]bool{}
	for _, f := range t.goFiles(true) {
		if f.isLaw() {
			continue
		}
		for i, line := range bytes.Split(f.text, []byte("\n")) {
			for _, page := range formatPage.FindAllString(string(line), -1) {
				named[page] = true
				if !t.names[page] {
					out = append(out, finding{f.path, i + 1, fmt.Sprintf("names %s, which does not exist", page)})
				}
			}
		}
	}
	for _, f := range t.pages() {
		if strings.HasPrefix(f.path, "docs/format/") && path.Base(f.path) != "README.md" && !named[f.path] {
			out = append(out, finding{f.path, 0, "no Go file names this page"})
		}
	}
	return out
}
