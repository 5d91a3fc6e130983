package memory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/testing/backendtest"
)

func TestBackend(t *testing.T) { backendtest.Run(t, Driver{}) }

// files is durable storage in memory: the content of each file in order.
type files struct{ content [][]byte }

func (f *files) Known(string) (statebackend.Ref, bool) { return statebackend.Ref{}, false }

func (f *files) Upload(_ context.Context, _ string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	all, err := io.ReadAll(io.NewSectionReader(content, 0, size))
	f.content = append(f.content, all)
	return f.ref(len(f.content) - 1), err
}

func (f *files) ref(i int) statebackend.Ref {
	return statebackend.Ref{Object: fmt.Sprint(i), Size: int64(len(f.content[i])), CRC32C: statebackend.Checksum(0, f.content[i])}
}

func (f *files) Fetch(_ context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	var i int
	_, err := fmt.Sscan(ref.Object, &i)
	return io.NopCloser(bytes.NewReader(f.content[i])), err
}

func open(t *testing.T, c statebackend.Config) statebackend.Backend {
	t.Helper()
	c.KeyGroups = statebackend.AllKeyGroups(16)
	b, err := Driver{}.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func entries(t *testing.T, b statebackend.Backend) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := b.Scan(statebackend.Range{End: []byte{0xff}}, func(key, value []byte) (bool, error) {
		got[string(key)] = string(value)
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func persist(t *testing.T, b statebackend.Backend, to *files) statebackend.Handle {
	t.Helper()
	s, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Persist(t.Context(), to)
	if err := errors.Join(err, s.Release()); err != nil {
		t.Fatal(err)
	}
	return h
}

// example is the content of the stored file.
func example() map[string]string {
	m := map[string]string{"": "", "a": "1"}
	for g := range statebackend.KeyGroup(3) {
		m[string(statebackend.AppendWindowKey(nil, 0, -10, 0, g, []byte("key")))] = fmt.Sprint("value ", g)
	}
	return m
}

func TestStoredFileIsReadBack(t *testing.T) {
	b := open(t, statebackend.Config{})
	var batch statebackend.Batch
	for key, value := range example() {
		batch.Put([]byte(key), []byte(value))
	}
	if err := b.Write(&batch); err != nil {
		t.Fatal(err)
	}
	var written files
	h := persist(t, b, &written)
	stored, err := os.ReadFile("testdata/state-v1.bin")
	if err != nil {
		t.Fatal(err)
	}
	if len(written.content) != 1 || !bytes.Equal(written.content[0], stored) {
		t.Errorf("written is %x, stored is %x", written.content, stored)
	}
	restored := open(t, statebackend.Config{Restore: []statebackend.Restore{{Handle: h, Fetcher: &files{[][]byte{stored}}}}})
	if diff := cmp.Diff(example(), entries(t, restored)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestStateIsCutIntoFilesOfBoundedSize(t *testing.T) {
	b := open(t, statebackend.Config{})
	want := map[string]string{}
	var batch statebackend.Batch
	for i := range 70 {
		key, value := fmt.Sprintf("%03d", i), strings.Repeat(string(rune('a'+i%26)), 1<<20)
		want[key] = value
		batch.Put([]byte(key), []byte(value))
	}
	if err := b.Write(&batch); err != nil {
		t.Fatal(err)
	}
	var to files
	h := persist(t, b, &to)
	if len(h.Files) != 3 {
		t.Errorf("70 MiB are in %d files, want 3", len(h.Files))
	}
	for i, content := range to.content {
		if len(content) > fileBytes+2<<20 {
			t.Errorf("file %d has %d bytes", i, len(content))
		}
	}
	got := entries(t, open(t, statebackend.Config{Restore: []statebackend.Restore{{Handle: h, Fetcher: &to}}}))
	if len(got) != len(want) {
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("key %s differs", key)
		}
	}
}

func TestMemoryLimitIsAnErrorWithARemedy(t *testing.T) {
	b := open(t, statebackend.Config{MemoryBytes: 4000})
	var batch statebackend.Batch
	batch.Put([]byte("k"), make([]byte, 3000))
	for range 20 { // overwriting takes nothing more
		if err := b.Write(&batch); err != nil {
			t.Fatal(err)
		}
	}
	h, to := statebackend.Handle{}, files{}
	h = persist(t, b, &to)
	batch.Reset()
	batch.Put([]byte("l"), make([]byte, 1000))
	if err := b.Write(&batch); err == nil || !strings.Contains(err.Error(), "raise the limit") {
		t.Errorf("error %v", err)
	}
	_, err := Driver{}.Open(t.Context(), statebackend.Config{MemoryBytes: 1000, KeyGroups: statebackend.AllKeyGroups(16), Restore: []statebackend.Restore{{Handle: h, Fetcher: &to}}})
	if err == nil || !strings.Contains(err.Error(), "raise the limit") {
		t.Errorf("restore: error %v", err)
	}
}

// The accounting follows the heap, or a limit would mean nothing.
func TestStatsAreNearTheHeap(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, size := range []int{0, 20, 64, 1000} {
		before := heap()
		b := open(t, statebackend.Config{})
		var batch statebackend.Batch
		for i := range 100_000 {
			if batch.Put(binary.BigEndian.AppendUint64(nil, uint64(i)*0x9e3779b97f4a7c15>>1), make([]byte, size)); batch.Len() == 1000 {
				if err := b.Write(&batch); err != nil {
					t.Fatal(err)
				}
				batch.Reset()
			}
		}
		used, said := heap()-before, b.Stats().MemoryBytes
		if used > said*13/10 || used < said*7/10 {
			t.Errorf("values of %d bytes: stats say %d bytes, the heap has grown by %d", size, said, used)
		}
		runtime.KeepAlive(b)
		runtime.KeepAlive(&batch)
	}
}

func TestDeletedEntriesAreNotCounted(t *testing.T) {
	b := open(t, statebackend.Config{})
	var batch statebackend.Batch
	for i := range 1000 {
		batch.Put(fmt.Appendf(nil, "%04d", i), make([]byte, i))
	}
	batch.Delete([]byte("0007"))
	batch.Delete([]byte("absent"))
	batch.DeleteRange(statebackend.Range{Start: []byte("0010"), End: []byte("0990")})
	batch.Put([]byte("0995"), nil)
	batch.DeleteRange(statebackend.Range{Start: []byte("0"), End: []byte("1")})
	if err := b.Write(&batch); err != nil {
		t.Fatal(err)
	}
	if got := b.Stats().MemoryBytes; got != 0 {
		t.Errorf("an empty backend takes %d bytes", got)
	}
}

// A hostile file whose checksums are right is refused too, in memory bounded by its size.
func TestHostileFileIsAnError(t *testing.T) {
	block := func(content string) string {
		b := binary.BigEndian.AppendUint32(nil, uint32(len(content)))
		b = binary.BigEndian.AppendUint32(b, statebackend.Checksum(0, []byte(content)))
		return string(b) + content
	}
	end := func(n byte) string {
		count := "\x00\x00\x00\x00\x00\x00\x00" + string(rune(n))
		return "\x00\x00\x00\x00" + string(binary.BigEndian.AppendUint32(nil, statebackend.Checksum(0, []byte(count)))) + count
	}
	good := fileMagic + block("\x00\x01\x01av") + block("\x00\x01\x01bv") + end(2)
	for name, c := range map[string]struct{ content, want string }{
		"good":                   {good, ""},
		"empty":                  {"", "first bytes"},
		"no end":                 {strings.TrimSuffix(good, end(2)), "block 2: unexpected EOF"},
		"wrong magic":            {"MSMEM\x00\x00\x02" + good[8:], "begins with"},
		"wrong count":            {fileMagic + block("\x00\x01\x01av") + end(2), "1 entries, but 2"},
		"more after the end":     {good + "x", "follow its end"},
		"block of 4 GiB":         {fileMagic + "\xff\xff\xff\xff\x00\x00\x00\x00", "at most"},
		"block of 1 GiB missing": {fileMagic + "\x40\x00\x00\x00\x00\x00\x00\x00abc", "unexpected EOF"},
		"wrong checksum":         {fileMagic + "\x00\x00\x00\x01\x00\x00\x00\x00a", "CRC"},
		"shares what is not there": {
			fileMagic + block("\x01\x01\x01av") + end(1), "malformed"},
		"shares beyond the block": {
			fileMagic + block("\x00\x01\x01av") + block("\x01\x01\x01bv") + end(2), "malformed"},
		"key of 8 MiB and more": {fileMagic + block("\x00\x81\x80\x80\x04\x00") + end(1), "malformed"},
		"endless number":        {fileMagic + block("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff") + end(1), "malformed"},
		"value beyond block":    {fileMagic + block("\x00\x01\x02av") + end(1), "does not fit"},
		"out of order":          {fileMagic + block("\x00\x01\x01bv") + block("\x00\x01\x01av") + end(2), "out of order"},
		"same key twice":        {fileMagic + block("\x00\x01\x01av\x01\x00\x01v") + end(2), "out of order"},
	} {
		at := &files{content: [][]byte{[]byte(c.content)}}
		h := statebackend.Handle{Driver: "memory", Version: formatVersion, KeyGroups: statebackend.AllKeyGroups(16), Files: []statebackend.File{{Name: "000000.state", Ref: at.ref(0)}}}
		_, err := Driver{}.Open(t.Context(), statebackend.Config{KeyGroups: statebackend.AllKeyGroups(16), Restore: []statebackend.Restore{{Handle: h, Fetcher: at}}})
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "000000.state")):
			t.Errorf("%s: error %v, want one that names the file and says %q", name, err, c.want)
		}
	}
}

func FuzzReadFile(f *testing.F) {
	stored, err := os.ReadFile("testdata/state-v1.bin")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(stored)
	f.Add([]byte(fileMagic))
	f.Fuzz(func(t *testing.T, content []byte) {
		n := 0
		// Whatever it is, it ends: in an error or with entries that were all there.
		err := readFile(bytes.NewReader(content), func(key, value []byte) error {
			if n += len(key) + len(value); len(key) > statebackend.MaxKeyBytes || len(value) > len(content) {
				t.Errorf("entry of %d and %d bytes from %d", len(key), len(value), len(content))
			}
			return nil
		})
		if err == nil && !bytes.HasPrefix(content, []byte(fileMagic)) {
			t.Error("read without its first bytes")
		}
	})
}
