// Package statebackend is where a subtask keeps the state that does not fit its cache: an ordered map of bytes that
// can be snapshot while it is written.
//
// Backends know bytes only. Types, caching and merging stand above them, in one typed write-back table, so a Backend
// sees batches: the misses of a batch of records, the entries that a cache evicts, whole windows to scan or to drop.
//
//	Driver.Open ── Backend ── Snapshot() ─┐            owner's goroutine
//	     ▲                                └─ Persist ── Uploader ──▶ Handle, plain data in the checkpoint
//	     └──────────── Restore{Handle, Fetcher} ◀──────────────────────┘
//
// keys.go lays out the keys, keygroup.go divides them among subtasks, handle.go is what a checkpoint remembers.
// Every driver passes testing/backendtest.
package statebackend

import (
	"bytes"
	"context"
	"io"
)

// Limits of one entry, the same for every backend so that a job does not depend on its driver.
const (
	MaxKeyBytes   = 8 << 20
	MaxValueBytes = 1 << 30
)

// Driver opens backends of one kind. It holds options only and is used by many goroutines at once.
type Driver interface {
	// Name is written into every Handle: the driver that persisted is the one that restores.
	Name() string
	// Open returns a Backend that holds exactly the entries of c.Restore whose key group lies in c.KeyGroups, and
	// none if there is nothing to restore. It waits for the download; ctx bounds it. An error names the file at fault
	// and leaves nothing open.
	Open(ctx context.Context, c Config) (Backend, error)
}

// Config says where a Backend lives, how much memory it may take, and what it starts from.
type Config struct {
	// Dir is a directory for this Backend alone, made if missing. What an earlier Backend left there is wiped: local
	// files are a cache of what checkpoints hold. A directory with anything else in it is refused. A driver that needs
	// no disk ignores it.
	Dir string
	// MemoryBytes bounds the memory of the Backend; 0 is the driver's default.
	MemoryBytes int64
	// KeyGroups are those that the subtask owns.
	KeyGroups KeyGroupRange
	// Restore lists the bases to start from: one when the parallelism is unchanged, several after it has shrunk. Their
	// key-group ranges do not overlap.
	Restore []Restore
}

// Restore is one persisted Snapshot to start from.
type Restore struct {
	Handle  Handle
	Fetcher Fetcher
}

// Backend is an ordered map from bytes to bytes, in the order of bytes.Compare. The empty key and the empty value
// are entries like any other.
//
// One goroutine owns a Backend and makes every call, except those on a Snapshot. Arguments belong to the caller again
// when a call returns; what a callback receives is valid until the callback returns, must not be changed, and the
// callback must not call the Backend. A callback's error ends the call, which returns it unwrapped.
//
// After any other error the Backend holds an unknown part of the failed call: the owner closes it and restores.
type Backend interface {
	// Get calls found once for each key that has an entry, in the order of keys, with the position of the key. A key
	// listed twice is found twice.
	Get(keys *Keys, found func(i int, value []byte) error) error

	// Write applies all operations of b, each after those before it, and sees every later call read them. A Snapshot
	// holds all of them or none.
	Write(b *Batch) error

	// Scan visits the entries of r in ascending order of keys, until visit returns false. To go on later, scan again
	// from After(the last key).
	Scan(r Range, visit func(key, value []byte) (more bool, err error)) error

	// Snapshot fixes what the Backend holds now. It is quick beside Persist (the barrier of a checkpoint waits for
	// it) and several Snapshots may be alive.
	Snapshot() (Snapshot, error)

	// Stats is cheap enough to call at every checkpoint.
	Stats() Stats

	// Close frees memory, disk and open files. It is the last call, and made once; Snapshots outlive it.
	Close() error
}

// Snapshot is a fixed state of a Backend: what is written afterwards, or closed, does not change it. It is used by
// one goroutine at a time, not necessarily the Backend's.
type Snapshot interface {
	// Persist uploads what the Uploader does not know yet and returns the Handle to restore from. It may be called
	// again after an error.
	Persist(ctx context.Context, up Uploader) (Handle, error)
	// Release frees what the Snapshot holds (memory, hard links). It is called exactly once, after any Persist has
	// returned.
	Release() error
}

// Uploader puts the files of a Snapshot into durable storage. The checkpoint layer implements it; a driver may call
// it from several goroutines.
type Uploader interface {
	// Known returns where an earlier completed base of this subtask holds the file with this identity (File.ID).
	// A base that is not known to be completed does not count: its files may be deleted.
	Known(id string) (Ref, bool)
	// Upload stores size bytes of content under a name that was never used before and returns once they are
	// durable. It may read content more than once (retries). name is the file's local name, for people.
	Upload(ctx context.Context, name string, content io.ReaderAt, size int64) (Ref, error)
}

// Fetcher opens what an Uploader stored. The content need not be verified: OpenFile does.
type Fetcher interface {
	Fetch(ctx context.Context, ref Ref) (io.ReadCloser, error)
}

// Stats is what a Backend uses now, in bytes.
type Stats struct {
	MemoryBytes int64
	DiskBytes   int64
}

// Range is the half-open range of keys [Start, End). It is empty if End is not after Start.
type Range struct{ Start, End []byte }

// Empty says whether no key lies in r.
func (r Range) Empty() bool { return bytes.Compare(r.Start, r.End) >= 0 }

// Contains says whether key lies in r.
func (r Range) Contains(key []byte) bool {
	return bytes.Compare(r.Start, key) <= 0 && bytes.Compare(key, r.End) < 0
}

// After appends to dst the least key that is greater than key.
func After(dst, key []byte) []byte { return append(append(dst, key...), 0) }
