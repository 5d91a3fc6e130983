#!/bin/sh
# Builds the servers that tests run against into bin/. Their versions are pinned in testing/servers, a Go
# module of its own, so that none of what they need is needed by Millstream. Takes 3 minutes the first time.
#
#   versitygw   an S3 server on top of a directory (Apache-2.0), for statebackend/storage/s3store
set -eu
cd "$(dirname "$0")/../testing/servers"
go build -o ../../bin/versitygw github.com/versity/versitygw/cmd/versitygw
echo "built bin/versitygw"
