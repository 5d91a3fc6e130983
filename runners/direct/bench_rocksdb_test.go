//go:build rocksdb

package direct_test

import (
	"testing"
	"time"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/statebackend/rocksdb"
)

// BenchmarkBackend is the ordered path of BenchmarkPath over each backend, with state inside the cache, and with
// ten checkpoints a second.
func BenchmarkBackend(b *testing.B) {
	for name, o := range map[string]direct.Options{
		"memory":                  {Backend: memory.Driver{}},
		"rocksdb":                 {Backend: rocksdb.Driver{}},
		"rocksdb-and-checkpoints": {Backend: rocksdb.Driver{}, CheckpointInterval: 100 * time.Millisecond},
	} {
		b.Run(name, func(b *testing.B) {
			o.Dir = b.TempDir()
			benchmark(b, func() int64 { return engineLoop(b, false, false, o) })
		})
	}
}
