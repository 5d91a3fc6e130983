#!/bin/sh
# Installs what building with the tag `rocksdb` needs, on Debian 12 or Ubuntu: run as root, as often as you like.
# A program without the tag needs none of it, and no C compiler. `make test` and `make demo` call this.
#
#   scripts/install-deps.sh          for building and testing
#   scripts/install-deps.sh demo     and what scripts/demo.sh uses
#
#   g++                                    compiles the C++ part of statebackend/rocksdb (cgo)
#   librocksdb-dev                         RocksDB 7.8, headers and libraries
#   libsnappy-dev liblz4-dev libzstd-dev   the compressors that RocksDB was built with; the static library needs them
#   zlib1g-dev libbz2-dev                  at link time
#   curl procps                            of the demo: it asks the status API and finds workers to kill
#
# Elsewhere it only looks whether the C++ compiler finds RocksDB, and says what is missing.
set -eu

packages="g++ librocksdb-dev libsnappy-dev liblz4-dev libzstd-dev zlib1g-dev libbz2-dev"
programs=""
without="or do without RocksDB: make test TAGS="
case "${1:-}" in
"") ;;
demo)
	packages="$packages curl procps"
	programs="curl pgrep"
	without="or run the example without RocksDB: go run ./examples/flights"
	;;
*)
	sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
	[ "$1" = --help ]
	exit
	;;
esac

if ! command -v dpkg-query >/dev/null; then
	missing=""
	for p in $programs; do
		command -v "$p" >/dev/null || missing="$missing $p"
	done
	# shellcheck disable=SC2086 # lists of options are meant
	if ! echo '#include <rocksdb/c.h>' | ${CXX:-c++} ${CGO_CPPFLAGS:-} ${CGO_CXXFLAGS:-} -E -x c++ - >/dev/null 2>&1; then
		missing="$missing RocksDB"
	fi
	if [ -n "$missing" ]; then
		echo "install-deps: missing:$missing; this script can install it on Debian and Ubuntu only." >&2
		echo "install-deps: install a C++ compiler and RocksDB with its compressors (macOS: brew install rocksdb, and set" >&2
		echo "install-deps: CGO_CXXFLAGS and CGO_LDFLAGS to where it is), $without" >&2
		exit 1
	fi
	echo "install-deps: the C++ compiler finds RocksDB"
	exit 0
fi

missing=""
for p in $packages; do
	if [ "$(dpkg-query -W -f='${Status}' "$p" 2>/dev/null)" != "install ok installed" ]; then
		missing="$missing $p"
	fi
done
if [ -z "$missing" ]; then
	echo "install-deps: all there: $packages"
	exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
	echo "install-deps: missing:$missing; install them with sudo $0${1:+ $1}, $without" >&2
	exit 1
fi
echo "install-deps: installing the system packages$missing"
apt-get update
# shellcheck disable=SC2086 # a list of words is meant
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
