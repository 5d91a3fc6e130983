//go:build rocksdb

package rocksdb

/*
#cgo CXXFLAGS: -std=c++17 -O2 -fno-rtti -Wall -Wextra
#cgo LDFLAGS: -lrocksdb -lstdc++ -lm -ldl -lpthread -lsnappy -llz4 -lzstd -lz -lbz2
#cgo noescape ms_get
#cgo nocallback ms_get
#cgo noescape ms_unpin
#cgo nocallback ms_unpin
#cgo noescape ms_write
#cgo nocallback ms_write
#cgo noescape ms_iter_new
#cgo nocallback ms_iter_new
#cgo noescape ms_iter_next
#cgo nocallback ms_iter_next
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"strings"
	"unsafe"

	"github.com/millstream/millstream/statebackend"
)

// The Go side of shim.h: types and errors, nothing else. Why not grocksdb, the binding that everybody knows: it has no
// batched MultiGet and needs five calls an entry to scan, and its C pointers are private, so that nothing can be added
// beside it (BenchmarkBindings has the figures).

// failure turns the message of a call into an error.
func failure(message *C.char) error {
	if message == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(message))
	return errors.New(C.GoString(message))
}

// pointer gives the bytes of b to a call; C keeps no pointer to them.
func pointer(b []byte) *C.char { return (*C.char)(unsafe.Pointer(unsafe.SliceData(b))) }

// mode is how a database is opened.
type mode int

const (
	readWrite mode = iota
	paused         // no compaction until resume: the tables are those of the manifest
	readOnly
)

func (o Options) c(memory int64, m mode) C.ms_options {
	flag := func(b bool) C.int32_t {
		if b {
			return 1
		}
		return 0
	}
	return C.ms_options{
		cache_bytes:        C.uint64_t(memory),
		write_buffer_bytes: C.uint64_t(o.WriteBufferBytes),
		file_bytes:         C.uint64_t(o.FileBytes),
		block_bytes:        C.uint32_t(o.BlockBytes),
		bloom_bits:         C.int32_t(o.BloomBits),
		compression:        C.int32_t(o.Compression),
		universal:          flag(o.Compaction == Universal),
		background_jobs:    C.int32_t(o.BackgroundJobs),
		read_only:          flag(m == readOnly),
		paused:             flag(m == paused),
	}
}

type database struct{ c *C.ms_db }

func openDatabase(dir string, o Options, memory int64, m mode) (*database, error) {
	path, opts := C.CString(dir), o.c(memory, m)
	defer C.free(unsafe.Pointer(path))
	var d database
	if err := failure(C.ms_open(path, &opts, &d.c)); err != nil {
		return nil, err
	}
	return &d, nil
}

func (d *database) close() { C.ms_close(d.c) }

func (d *database) resume() error { return failure(C.ms_resume(d.c)) }

// tables returns the names of the files that the database consists of, in no order.
func (d *database) tables() []string {
	var names *C.char
	var size C.size_t
	C.ms_tables(d.c, &names, &size)
	return strings.Fields(C.GoStringN(names, C.int(size)))
}

// get returns the values of keys [from, to), a part of which has no data; they are valid until unpin.
func (d *database) get(keys *statebackend.Keys, from, to int) ([]C.ms_value, error) {
	start := 0
	if from > 0 {
		start = keys.Ends[from-1]
	}
	ends := (*C.ptrdiff_t)(unsafe.Pointer(&keys.Ends[from]))
	var values *C.ms_value
	if err := failure(C.ms_get(d.c, pointer(keys.Bytes), C.size_t(start), ends, C.size_t(to-from), &values)); err != nil {
		return nil, err
	}
	return unsafe.Slice(values, to-from), nil
}

func (d *database) unpin() { C.ms_unpin(d.c) }

// bytes returns the value, and false if there is none.
func valueBytes(v C.ms_value) ([]byte, bool) {
	if v.data == nil {
		return nil, false
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(v.data)), int(v.size)), true
}

func (d *database) write(batch []byte) error {
	return failure(C.ms_write(d.c, pointer(batch), C.size_t(len(batch))))
}

func (d *database) flush(wait bool) error {
	w := C.int(0)
	if wait {
		w = 1
	}
	return failure(C.ms_flush(d.c, w))
}

func (d *database) checkpoint(dir string) error {
	path := C.CString(dir)
	defer C.free(unsafe.Pointer(path))
	return failure(C.ms_checkpoint(d.c, path))
}

func (d *database) ingest(paths []string) error {
	list := make([]*C.char, len(paths))
	for i, p := range paths {
		list[i] = C.CString(p)
		defer C.free(unsafe.Pointer(list[i]))
	}
	return failure(C.ms_ingest(d.c, unsafe.SliceData(list), C.size_t(len(list))))
}

func (d *database) stats() statebackend.Stats {
	return statebackend.Stats{MemoryBytes: int64(C.ms_memory_bytes(d.c)), DiskBytes: int64(C.ms_disk_bytes(d.c))}
}

type iterator struct{ c *C.ms_iter }

// iterate reads [start, end); a nil end is no end.
func (d *database) iterate(start, end []byte) iterator {
	return iterator{C.ms_iter_new(d.c, pointer(start), C.size_t(len(start)), pointer(end), C.size_t(len(end)))}
}

func (it iterator) close() { C.ms_iter_free(it.c) }

// next returns the next entries, about limit bytes of them, valid until the next call: for each 4 bytes of key size and 4
// of value size in the machine's order, the key and the value. It returns none at the end.
func (it iterator) next(limit int) ([]byte, error) {
	var data *C.char
	var size C.size_t
	if err := failure(C.ms_iter_next(it.c, C.size_t(limit), &data, &size)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(data)), int(size)), nil
}

// table is a file of entries that is being written.
type table struct{ c *C.ms_sst }

func newTable(path string, o Options) (table, error) {
	p, opts := C.CString(path), o.c(0, readWrite)
	defer C.free(unsafe.Pointer(p))
	var t table
	return t, failure(C.ms_sst_new(&opts, p, &t.c))
}

// add appends entries laid out as iterator.next returns them.
func (t table) add(entries []byte) error {
	return failure(C.ms_sst_add(t.c, pointer(entries), C.size_t(len(entries))))
}

func (t table) finish() error { return failure(C.ms_sst_end(t.c, 0)) }
func (t table) drop()         { _ = failure(C.ms_sst_end(t.c, 1)) } // dropping does not fail

// fileID returns RocksDB's identifier of the content of a file, which no other file has, whoever wrote it.
func fileID(path string) ([]byte, error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	id := make([]byte, 24)
	return id, failure(C.ms_file_id(p, pointer(id)))
}
