//go:build rocksdb

package main

import (
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/statebackend/rocksdb"
)

// With -tags rocksdb the program has --state-backend=rocksdb and needs the C++ library; without it, neither.
func init() { linked = append(linked, runners.WithBackend(rocksdb.Driver{})) }
