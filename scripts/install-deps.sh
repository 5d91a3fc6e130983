#!/bin/sh
# Installs what building with the tag `rocksdb` needs, on Debian 12 or Ubuntu: run as root, as often as you like.
# A program without the tag needs none of it, and no C compiler.
#
#   g++                                    compiles the C++ part of statebackend/rocksdb (cgo)
#   librocksdb-dev                         RocksDB 7.8, headers and libraries
#   libsnappy-dev liblz4-dev libzstd-dev   the compressors that RocksDB was built with; the static library needs them
#   zlib1g-dev libbz2-dev                  at link time
set -eu

packages="g++ librocksdb-dev libsnappy-dev liblz4-dev libzstd-dev zlib1g-dev libbz2-dev"

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
	echo "install-deps: missing:$missing; run this script as root (sudo $0)" >&2
	exit 1
fi
echo "install-deps: installing$missing"
apt-get update
# shellcheck disable=SC2086 # a list of words is meant
DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
