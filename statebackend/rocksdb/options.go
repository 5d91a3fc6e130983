//go:build rocksdb

package rocksdb

import (
	"fmt"
	"runtime"
)

// Options tune RocksDB. The zero value is right for most state; a field that is zero has the default of its comment.
type Options struct {
	// WriteBufferBytes bounds all memtables of a Backend, the entries written last. A base flushes them, so they also
	// bound how long a Snapshot takes. They are part of Config.MemoryBytes. Default: half of it, at most 64 MiB.
	WriteBufferBytes int64
	// BlockBytes is the size of a block of a file, the unit of reading and caching, before compression. Default: 4 KiB.
	BlockBytes int
	// BloomBits is the size of the filter that saves reads of absent keys, in bits a key; negative is no filter.
	// Default: 10, one false answer in a hundred.
	BloomBits int
	// Compression of files. Default: LZ4.
	Compression Compression
	// Compaction style. Default: Leveled.
	Compaction Compaction
	// FileBytes is about the size of a file, and so of what a base shares or uploads again. Default: 16 MiB.
	FileBytes int64
	// BackgroundJobs is the number of threads for flushes and compactions. All Backends of the process share them: the
	// largest number counts. Default: one a processor (GOMAXPROCS), at least 2.
	BackgroundJobs int
}

// Compression is how blocks are compressed.
type Compression int

// The compressions: ZSTD makes smaller files than LZ4 and takes several times as long.
const (
	LZ4 Compression = iota
	ZSTD
	Uncompressed
)

// Compaction is how files are merged.
type Compaction int

// The compactions. Universal rewrites entries less often, reads look into more files, and it needs up to twice the disk
// for a while; bases upload as much with one as with the other (BenchmarkBases).
const (
	Leveled Compaction = iota
	Universal
)

// SmallDisk is for state whose size costs more than time: smaller files, on disk and in storage.
func SmallDisk() Options { return Options{Compression: ZSTD, BlockBytes: 32 << 10} }

const (
	// DefaultMemoryBytes is the bound of a Backend whose Config sets none.
	DefaultMemoryBytes = 64 << 20
	minMemoryBytes     = 4 << 20
)

// resolve fills in the defaults for so much memory, 0 for the default.
func (o Options) resolve(memory int64) (Options, int64, error) {
	if memory == 0 {
		memory = DefaultMemoryBytes
	}
	if memory < minMemoryBytes {
		return o, 0, fmt.Errorf("open rocksdb state: %d bytes of memory a subtask, of at least %d: raise the memory limit or lower the parallelism", memory, minMemoryBytes)
	}
	if o.WriteBufferBytes == 0 {
		o.WriteBufferBytes = min(memory/2, 64<<20)
	}
	if o.BlockBytes == 0 {
		o.BlockBytes = 4 << 10
	}
	if o.BloomBits == 0 {
		o.BloomBits = 10
	}
	if o.FileBytes == 0 {
		o.FileBytes = 16 << 20
	}
	if o.BackgroundJobs == 0 {
		o.BackgroundJobs = min(max(2, runtime.GOMAXPROCS(0)), 64)
	}
	switch {
	case o.WriteBufferBytes < 1<<20 || o.WriteBufferBytes > memory:
		return o, 0, fmt.Errorf("open rocksdb state: write buffer of %d bytes, want at least 1 MiB and at most the memory of %d", o.WriteBufferBytes, memory)
	case o.BlockBytes < 1<<10 || o.BlockBytes > 4<<20:
		return o, 0, fmt.Errorf("open rocksdb state: blocks of %d bytes, want 1 KiB to 4 MiB", o.BlockBytes)
	case o.BloomBits > 64:
		return o, 0, fmt.Errorf("open rocksdb state: a filter of %d bits a key, want at most 64", o.BloomBits)
	case o.FileBytes < 1<<20:
		return o, 0, fmt.Errorf("open rocksdb state: files of %d bytes, want at least 1 MiB", o.FileBytes)
	case o.BackgroundJobs < 1 || o.BackgroundJobs > 64:
		return o, 0, fmt.Errorf("open rocksdb state: %d background jobs, want 1 to 64", o.BackgroundJobs)
	case o.Compression < LZ4 || o.Compression > Uncompressed || o.Compaction < Leveled || o.Compaction > Universal:
		return o, 0, fmt.Errorf("open rocksdb state: unknown compression %d or compaction %d", o.Compression, o.Compaction)
	}
	return o, memory, nil
}
