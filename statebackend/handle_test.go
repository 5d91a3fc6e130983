package statebackend

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func exampleHandle() Handle {
	return Handle{
		Driver:    "rocksdb",
		Version:   1,
		KeyGroups: KeyGroupRange{First: 64, End: 128},
		Files: []File{
			{Name: "000012.sst", ID: "9C3C8D7E2F6A1B50-0011223344556677", Ref: Ref{Object: "state/7/3f-000012.sst", Size: 1 << 33, CRC32C: 0xdeadbeef}},
			{Name: "MANIFEST-000004", Ref: Ref{Object: "state/7/40-MANIFEST-000004", Size: 0}},
		},
	}
}

func TestHandleReadsStoredExample(t *testing.T) {
	stored, err := os.ReadFile("testdata/handle-v1.bin")
	if err != nil {
		t.Fatal(err)
	}
	got, rest, err := DecodeHandle(append(stored, "rest"...))
	if err != nil || string(rest) != "rest" {
		t.Fatalf("rest %q, error %v", rest, err)
	}
	if diff := cmp.Diff(exampleHandle(), got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	again, err := got.Append(nil)
	if err != nil || !bytes.Equal(again, stored) {
		t.Errorf("encodes as %x, error %v; stored is %x", again, err, stored)
	}
}

func TestHandleRefusesWhatCannotBeRestored(t *testing.T) {
	file := func(change func(f *File)) func(h *Handle) { return func(h *Handle) { change(&h.Files[0]) } }
	for name, change := range map[string]func(h *Handle){
		"no driver":          func(h *Handle) { h.Driver = "" },
		"long driver":        func(h *Handle) { h.Driver = strings.Repeat("d", maxStringBytes+1) },
		"negative version":   func(h *Handle) { h.Version = -1 },
		"reversed groups":    func(h *Handle) { h.KeyGroups = KeyGroupRange{First: 2, End: 1} },
		"too many groups":    func(h *Handle) { h.KeyGroups.End = MaxKeyGroups + 1 },
		"file listed twice":  func(h *Handle) { h.Files[1].Name = h.Files[0].Name },
		"no name":            file(func(f *File) { f.Name = "" }),
		"parent":             file(func(f *File) { f.Name = ".." }),
		"path":               file(func(f *File) { f.Name = "../../etc/passwd" }),
		"backslash":          file(func(f *File) { f.Name = `a\b` }),
		"NUL":                file(func(f *File) { f.Name = "a\x00b" }),
		"long name":          file(func(f *File) { f.Name = strings.Repeat("n", 256) }),
		"long identity":      file(func(f *File) { f.ID = strings.Repeat("i", maxStringBytes+1) }),
		"negative file size": file(func(f *File) { f.Ref.Size = -1 }),
	} {
		h := exampleHandle()
		change(&h)
		if _, err := h.Append(nil); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func TestDecodeHandleRefusesEveryTruncation(t *testing.T) {
	whole, err := exampleHandle().Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, _, err := DecodeHandle(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are decoded", n, len(whole))
		}
	}
}

func FuzzDecodeHandle(f *testing.F) {
	whole, err := exampleHandle().Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte("\x01\x01d\x00\x00\x00\x00\x00\xff\xff\x3f")) // a million files, none there
	f.Fuzz(func(t *testing.T, b []byte) {
		h, rest, err := DecodeHandle(b)
		if err != nil {
			return
		}
		again, err := h.Append(nil)
		if err != nil {
			t.Fatalf("decoded, but cannot be encoded: %v", err)
		}
		if h2, _, err := DecodeHandle(again); err != nil || !cmp.Equal(h, h2) {
			t.Errorf("%x became %x (error %v), after which %d bytes were left", b, again, err, len(rest))
		}
	})
}

func TestCheckRestoreNamesTheMismatch(t *testing.T) {
	a, b := exampleHandle(), exampleHandle()
	b.KeyGroups = KeyGroupRange{First: 127, End: 130}
	for want, c := range map[string]Config{
		`written by backend "rocksdb" and cannot be read by "memory"`: {Restore: []Restore{{Handle: a}}},
		"overlap": {Restore: []Restore{{Handle: a}, {Handle: b}}},
	} {
		driver := "rocksdb"
		if strings.Contains(want, "memory") {
			driver = "memory"
		}
		if err := c.CheckRestore(driver, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	if err := (Config{Restore: []Restore{{Handle: a}}}).CheckRestore("rocksdb", 2); err == nil {
		t.Error("another format version is accepted")
	}
	b.KeyGroups = KeyGroupRange{First: 128, End: 130}
	if err := (Config{Restore: []Restore{{Handle: a}, {Handle: b}}}).CheckRestore("rocksdb", 1); err != nil {
		t.Errorf("adjacent handles: %v", err)
	}
}

type content []byte

func (c content) Fetch(context.Context, Ref) (io.ReadCloser, error) {
	return io.NopCloser(iotest.OneByteReader(bytes.NewReader(c))), nil
}

func TestOpenFileVerifiesSizeAndChecksum(t *testing.T) {
	good := []byte("0123456789")
	f := File{Name: "000012.sst", Ref: Ref{Object: "obj", Size: 10, CRC32C: Checksum(0, good)}}
	for name, c := range map[string]struct {
		content string
		ok      bool
	}{
		"whole":     {"0123456789", true},
		"truncated": {"012345678", false},
		"longer":    {"01234567890", false},
		"changed":   {"0123456780", false},
		"empty":     {"", false},
	} {
		r, err := OpenFile(t.Context(), content(c.content), f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(r)
		if ok := err == nil; ok != c.ok || !ok && !strings.Contains(err.Error(), "000012.sst") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestBatchKeepsOrderAndLimits(t *testing.T) {
	var b Batch
	for range 2 { // the second time over reused memory
		b.Reset()
		b.Put([]byte("k"), []byte("v"))
		b.Put(nil, nil)
		b.Delete([]byte("d"))
		b.DeleteRange(Range{Start: []byte("a"), End: []byte("a")}) // empty: not added
		b.DeleteRange(Range{Start: []byte("a"), End: []byte("b")})
		var got []string
		err := b.Each(func(op Op, first, second []byte) error {
			got = append(got, string('0'+byte(op))+string(first)+":"+string(second))
			return nil
		})
		if diff := cmp.Diff([]string{"1k:v", "1:", "2d:", "3a:b"}, got); err != nil || diff != "" || b.Len() != 4 {
			t.Errorf("%d operations, error %v, -want +got\n%s", b.Len(), err, diff)
		}
	}
	stop := errors.New("stop")
	n := 0
	if err := b.Each(func(Op, []byte, []byte) error { n++; return stop }); err != stop || n != 1 {
		t.Errorf("error %v after %d operations", err, n)
	}
	b.Put(make([]byte, MaxKeyBytes), nil)
	if b.Err() != nil || b.Len() != 5 {
		t.Errorf("longest key: %v", b.Err())
	}
	b.Delete(make([]byte, MaxKeyBytes+1))
	b.Put([]byte("k"), nil)
	if b.Err() == nil || b.Len() != 5 {
		t.Errorf("longer key: error %v, %d operations", b.Err(), b.Len())
	}
	if b.Reset(); b.Err() != nil || b.Len() != 0 || b.Size() != 0 {
		t.Errorf("after Reset: %+v", b)
	}
}

func TestReadBatchRefusesWhatNoBatchHas(t *testing.T) {
	for name, src := range map[string]string{
		"unknown operation":      "\x04\x00\x00",
		"operation 0":            "\x00\x00\x00",
		"no arguments":           "\x01",
		"one argument":           "\x01\x01k",
		"argument too short":     "\x01\x01k\x02v",
		"endless length":         "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"delete with a value":    "\x02\x01k\x01v",
		"range with equal ends":  "\x03\x01a\x01a",
		"range that is reversed": "\x03\x01b\x01a",
		"good and then bad":      "\x01\x01k\x01v\x03\x01b\x01a",
	} {
		var b Batch
		if err := ReadBatch(strings.NewReader(src), b.Add); err == nil {
			t.Errorf("%s: %d operations", name, b.Len())
		}
	}
}

func FuzzReadBatch(f *testing.F) {
	var b Batch
	b.Put([]byte("k"), []byte("v"))
	b.Delete(nil)
	b.DeleteRange(Range{Start: []byte("a"), End: []byte("b")})
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, src []byte) {
		var read, again Batch
		if err := ReadBatch(bytes.NewReader(src), read.Add); err != nil {
			return
		}
		if err := read.Each(again.Add); err != nil || !bytes.Equal(read.Bytes(), again.Bytes()) {
			t.Errorf("%x became %x and then %x, %v", src, read.Bytes(), again.Bytes(), err)
		}
	})
}

func TestKeysAreParts(t *testing.T) {
	var k Keys
	for range 2 {
		k.Reset()
		k.Append([]byte("abc"))
		k.End()
		k.Bytes = append(k.Bytes, "de"...)
		k.End()
		got := []string{}
		for i := range k.Len() {
			got = append(got, string(k.At(i)))
		}
		if diff := cmp.Diff([]string{"abc", "", "de"}, got); diff != "" {
			t.Error(diff)
		}
	}
}
