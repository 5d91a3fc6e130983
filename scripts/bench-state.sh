#!/bin/sh
# What state costs: bench/spill beside a loop in C++, then bench/stall. Figures count only with a RocksDB that is built
# without assertions, which Debian's is not:
#
#   ROCKSDB_LIB=folder/of/librocksdb.a scripts/bench-state.sh
#
# RUNS is how many runs of each. bench/README.md shows what it prints.
set -eu
cd "$(dirname "$0")/../bench"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
lib=${ROCKSDB_LIB:+-L$ROCKSDB_LIB}
# The options of the backend, whose file the loop includes, need functions that it does not call.
# shellcheck disable=SC2086 # no word if it is empty
g++ -std=c++17 -O2 -fno-rtti -Wall -Wextra -Wno-unused-function spill/loop/loop.cc -o "$out/loop" $lib \
	-lrocksdb -lpthread -ldl -lsnappy -llz4 -lzstd -lz -lbz2
go build -tags rocksdb -ldflags "-linkmode external -extldflags '$lib'" -o "$out/" ./spill ./stall
"$out/spill" -loop="$out/loop" -runs="${RUNS:-3}"
"$out/stall" -runs="${RUNS:-3}"
