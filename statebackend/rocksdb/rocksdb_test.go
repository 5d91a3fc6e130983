//go:build rocksdb

package rocksdb

import (
	"testing"

	"github.com/millstream/millstream/statebackend"
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

func open(t *testing.T, c statebackend.Config, o Options) *backend {
	t.Helper()
	if c.Dir == "" {
		c.Dir = t.TempDir()
	}
	c.KeyGroups = statebackend.AllKeyGroups(statebackend.DefaultKeyGroups)
	b, err := Driver{o}.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return b.(*backend)
}
