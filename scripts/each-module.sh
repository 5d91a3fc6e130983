#!/bin/sh
# Runs a command in the folder of every Go module that has code: each-module.sh go test ./...
# The library is one module; what needs more libraries than its users should get (bench, test servers) has its own.
# The pinned linters (internal/tools) and modules that only pin programs have no code.
set -eu

cd "$(dirname "$0")/.."
for mod in $(find . -name go.mod -not -path './.*' -not -path './bin/*' -not -path '*/testdata/*' | sort); do
	dir=$(dirname "$mod")
	if [ -n "$(find "$dir" -name '*.go' | head -n 1)" ]; then
		echo "== $dir: $*" >&2
		(cd "$dir" && "$@")
	fi
done
