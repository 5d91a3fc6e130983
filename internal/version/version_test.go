package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestDescribe(t *testing.T) {
	platform := []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: "arm64"}}
	with := func(s ...debug.BuildSetting) []debug.BuildSetting { return append(s, platform...) }
	tests := []struct {
		name string
		info debug.BuildInfo
		want string
	}{{
		name: "installed at a release",
		info: debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: module, Version: "v0.3.1"}, Settings: with()},
		want: "millstream v0.3.1 (go1.26.8 linux/arm64)",
	}, {
		name: "built in the repository, with changes",
		info: debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: module, Version: "(devel)"},
			Settings: with(debug.BuildSetting{Key: "vcs.revision", Value: "1a2b3c4d5e6f7a8b"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"})},
		want: "millstream devel 1a2b3c4d5e6f modified (go1.26.8 linux/arm64)",
	}, {
		name: "a dependency of the user's program, whose own version and commit do not matter",
		info: debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/flights", Version: "v9.9.9"},
			Deps:     []*debug.Module{{Path: "example.com/other", Version: "v7.0.0"}, {Path: module, Version: "v0.3.1"}},
			Settings: with(debug.BuildSetting{Key: "-tags", Value: "rocksdb"}, debug.BuildSetting{Key: "vcs.revision", Value: "ffff"})},
		want: "millstream v0.3.1 (go1.26.8 linux/arm64, tags rocksdb)",
	}, {
		name: "replaced by a fork",
		info: debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.com/flights"},
			Deps:     []*debug.Module{{Path: module, Version: "v0.3.1", Replace: &debug.Module{Path: "example.com/fork", Version: "v0.3.2"}}},
			Settings: with()},
		want: "millstream v0.3.2 (go1.26.8 linux/arm64)",
	}, {
		name: "not stamped",
		info: debug.BuildInfo{GoVersion: "go1.26.8"},
		want: "millstream unknown version (go1.26.8)",
	}}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := describe(&test.info); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func TestStringIsOfThisBinary(t *testing.T) {
	if got := String(); !strings.HasPrefix(got, "millstream ") || !strings.Contains(got, runtime.Version()) {
		t.Errorf("got %s", got)
	}
}
