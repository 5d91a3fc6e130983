//go:build rocksdb && unix

package distributed_test

import (
	"testing"

	"github.com/millstream/millstream/statebackend/rocksdb"
)

func init() { backends["rocksdb"] = rocksdb.Driver{} }

// TestJobIsExactWithRocksDB: state that does not fit its cache, in RocksDB, through crashes of workers and coordinator.
func TestJobIsExactWithRocksDB(t *testing.T) {
	for _, points := range []string{
		"mid-upload=kill@5,mid-restore=kill@1",
		"mid-firing=kill@2,after-publish=kill@4",
	} {
		t.Run(points, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 40_000, 20_000, "--checkpoint-mode=auto").durable()
			r.args = append(r.args, "--state-backend=rocksdb")
			r.failpoints(points)
			r.untilDone(nil)
			r.exact()
		})
	}
}
