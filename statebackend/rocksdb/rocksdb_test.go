//go:build rocksdb

package rocksdb

import (
	"testing"

	"github.com/millstream/millstream/testing/backendtest"
)

func TestBackend(t *testing.T) {
	for name, o := range map[string]Options{
		"default": {}, "few uploads": FewUploads(), "small disk": SmallDisk(),
		"small memtable, no filter": {WriteBufferBytes: 1 << 20, BloomBits: -1, FileBytes: 1 << 20, Compression: Uncompressed, BlockBytes: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) { backendtest.Run(t, Driver{o}, backendtest.SharesFiles) })
	}
}
