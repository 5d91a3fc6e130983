// Package rocksdb keeps state in RocksDB on local disk: state larger than memory, in memory that is bounded, and bases
// of which only new files are uploaded.
//
// The package is empty unless it is built with the tag `rocksdb`, so that programs which do not use it need neither
// cgo nor a C++ library:
//
//	scripts/install-deps.sh
//	go build -tags rocksdb ./...
//
// A main names the driver in a file with the same tag: runners.WithBackend(rocksdb.Driver{}).
//
// The database is a cache of what checkpoints hold: it has no write-ahead log, and its directory is wiped when it is
// opened. The state lives in the files of the last base and in what the checkpoint layer keeps besides.
//
// The first Open makes glibc's malloc use one arena for all threads of the process, without which RocksDB's memory is several times
// its limit; MALLOC_ARENA_MAX in the environment overrides that. Free pages between blocks are given back as caches turn over.
package rocksdb
