//go:build rocksdb

package clustertest

import "github.com/millstream/millstream/statebackend/rocksdb"

func init() { drivers["rocksdb"] = rocksdb.Driver{} }
