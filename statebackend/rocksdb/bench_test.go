//go:build rocksdb

package rocksdb

import (
	"testing"

	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/testing/backendtest"
)

// The backends side by side, in one run.
func BenchmarkBackend(b *testing.B) {
	b.Run("memory", func(b *testing.B) { backendtest.Benchmark(b, memory.Driver{}) })
	b.Run("rocksdb", func(b *testing.B) { backendtest.Benchmark(b, Driver{}) })
	b.Run("rocksdb-few-uploads", func(b *testing.B) { backendtest.Benchmark(b, Driver{FewUploads()}) })
}
