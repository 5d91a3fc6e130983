//go:build rocksdb

package ptest

import "github.com/millstream/millstream/statebackend/rocksdb"

func init() { drivers["rocksdb"] = rocksdb.Driver{} }
