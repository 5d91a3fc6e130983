package memory

import (
	"testing"

	"github.com/millstream/millstream/testing/backendtest"
)

func BenchmarkBackend(b *testing.B) { backendtest.Benchmark(b, Driver{}) }
