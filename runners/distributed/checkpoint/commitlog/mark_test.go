package commitlog

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/millstream/millstream/statebackend/storage"
)

// A log whose newest entries were deleted by hand is told from one that never had them.
func TestALogThatWasCutShortIsNoticed(t *testing.T) {
	g, store := newLog(t)
	expect := func(newest, reached Slot) {
		t.Helper()
		n, r, err := g.CutShort(t.Context())
		if err != nil || reached != 0 && n != newest || r != reached {
			t.Errorf("the log ends at slot %d and had reached %d, %v; want %d, %d", n, r, err, newest, reached)
		}
	}
	remove := func(s Slot) {
		t.Helper()
		if err := store.Delete(t.Context(), name(s)); err != nil {
			t.Fatal(err)
		}
	}
	expect(0, 0) // nothing was there
	term := claim(t, g, Latest)
	expect(1, 0)
	publish(t, term, "one", "two")
	expect(3, 0)
	remove(3)
	expect(2, 3)
	remove(2)
	remove(1)
	expect(0, 3)

	if _, err := store.Put(t.Context(), markName, bytes.NewReader([]byte("rubbish")), 7); err != nil {
		t.Fatal(err)
	}
	if _, _, err := g.CutShort(t.Context()); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a damaged mark: %v", err)
	}
}

func TestStoredMarkIsReadBack(t *testing.T) {
	g, store := newLog(t)
	term := claim(t, g, Latest)
	publish(t, term, "one")
	written, err := store.Read(t.Context(), markName, 100)
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/mark.bin"
	if *update {
		if err := os.WriteFile(file, written, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := decodeMark(stored); err != nil || s != 2 || !bytes.Equal(stored, written) {
		t.Errorf("slot %d, %v; today it is written as %x", s, err, written)
	}
	for n := range stored {
		if _, err := decodeMark(stored[:n]); err == nil {
			t.Errorf("%d of %d bytes were read without an error", n, len(stored))
		}
		bad := bytes.Clone(stored)
		bad[n] ^= 4
		if _, err := decodeMark(bad); err == nil {
			t.Errorf("byte %d was changed unnoticed", n)
		}
	}
}
