#!/bin/sh
# Makes the Go code of control.proto anew. It is committed: only who changes the protocol needs this script and protoc
# (Debian and Ubuntu: apt-get install protobuf-compiler). The plugins' versions are pinned here.
set -eu

cd "$(dirname "$0")/../runners/distributed/control"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
GOBIN="$bin" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN="$bin" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH="$bin:$PATH" protoc --go_out=. --go_opt=paths=source_relative \
	--go-grpc_out=. --go-grpc_opt=paths=source_relative control.proto
