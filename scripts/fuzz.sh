#!/bin/sh
# Fuzzes every target for a time, one after another: fuzz.sh 30s
# An input that fails is written to the testdata of its package: commit it with the fix.
set -eu

cd "$(dirname "$0")/.."
grep -r --include='*_test.go' '^func Fuzz' . | sed 's/^\(.*\)\/[^/]*:func \(Fuzz[A-Za-z0-9_]*\).*/\1 \2/' | sort |
	while read -r pkg target; do
		echo "== $pkg $target" >&2
		go test "$pkg" -run '^$' -fuzz "^$target\$" -fuzztime "$1" </dev/null
	done
