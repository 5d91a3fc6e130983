// Package version says which Millstream a program was built with.
package version

import (
	"fmt"
	"runtime/debug"
	"strings"
)

const module = "github.com/millstream/millstream"

// String describes the running program for --version and the first line of a log, for example
//
//	millstream v0.3.1 (go1.26.8 linux/amd64, tags rocksdb)
//	millstream devel 1a2b3c4d5e6f modified (go1.26.8 linux/amd64)
//
// It comes from what the Go tool stamps into every binary, so there is nothing to set at build time.
func String() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "millstream, built without module support"
	}
	return describe(info)
}

// describe prefers the version of the module; a build inside this repository has none, but a commit.
func describe(info *debug.BuildInfo) string {
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}

	version := "unknown version"
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path != module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version != "" {
			version = m.Version
		}
	}
	if version == "(devel)" {
		version = "devel"
		if revision := set["vcs.revision"]; revision != "" {
			version += " " + revision[:min(12, len(revision))]
		}
		if set["vcs.modified"] == "true" {
			version += " modified"
		}
	}

	about := []string{info.GoVersion}
	if set["GOOS"] != "" {
		about[0] += " " + set["GOOS"] + "/" + set["GOARCH"]
	}
	if tags := set["-tags"]; tags != "" {
		about = append(about, "tags "+tags)
	}
	return fmt.Sprintf("millstream %s (%s)", version, strings.Join(about, ", "))
}
