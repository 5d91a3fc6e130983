package commitlog

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/millstream/millstream/statebackend/storage"
)

var update = flag.Bool("update", false, "rewrite testdata; only for a new version of the format")

func nonce(b byte) (n Nonce) {
	for i := range n {
		n[i] = b + byte(i)
	}
	return n
}

// The entries in testdata, byte for byte those of docs/format/log.md.
var stored = map[string]Entry{
	"claim_first.bin": {Header: Header{Kind: Claim, Ref: Ref{1, nonce(0x10)}, Generation: 1}},
	"claim.bin": {Header{Kind: Claim, Ref: Ref{42, nonce(0x30)}, Generation: 42, Previous: Ref{41, nonce(0x20)}, Restores: Ref{41, nonce(0x20)}},
		[]byte("10.0.0.7:6100")},
	"claim_new_run.bin": {Header: Header{Kind: Claim, Ref: Ref{43, nonce(0x40)}, Generation: 43, Previous: Ref{41, nonce(0x20)}}},
	"manifest.bin": {Header{Kind: Manifest, Ref: Ref{44, nonce(0x50)}, Generation: 43, Previous: Ref{41, nonce(0x20)}},
		[]byte("the checkpoint layer's own format")},
}

func TestEntriesWrittenByVersion1AreReadBack(t *testing.T) {
	for file, want := range stored {
		made, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile("testdata/"+file, made, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b)
		if err != nil || got.Header != want.Header || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("%s: %+v, %v; want %+v", file, got, err, want)
		}
		if !bytes.Equal(made, b) {
			t.Errorf("%s: encode makes other bytes:\n%x\n%x", file, made, b)
		}
	}
}

func TestDamagedEntriesAreErrors(t *testing.T) {
	for file := range stored {
		b, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for n := range b {
			if _, err := decode(b[:n]); !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%s cut to %d bytes: error is %v", file, n, err)
			}
			for bit := range 8 {
				c := bytes.Clone(b)
				c[n] ^= 1 << bit
				if _, err := decode(c); err == nil {
					t.Errorf("%s with bit %d of byte %d flipped: no error", file, bit, n)
				}
			}
		}
		if _, err := decode(append(bytes.Clone(b), 0)); err == nil {
			t.Errorf("%s with a byte more: no error", file)
		}
	}
}

func TestHeadersThatNoLeaderWritesAreErrors(t *testing.T) {
	r := func(s Slot) Ref { return Ref{s, nonce(byte(s))} }
	for _, h := range []Header{
		{},
		{Kind: 3, Ref: r(1), Generation: 1},
		{Kind: Claim},
		{Kind: Claim, Ref: r(2), Generation: 1},
		{Kind: Claim, Ref: r(maxSlot + 1), Generation: maxSlot + 1},
		{Kind: Claim, Ref: r(2), Generation: 2, Previous: r(2)},
		{Kind: Claim, Ref: r(2), Generation: 2, Previous: Ref{0, nonce(1)}},
		{Kind: Claim, Ref: r(3), Generation: 3, Previous: r(1), Restores: r(2)},
		{Kind: Manifest, Ref: r(2), Generation: 2},
		{Kind: Manifest, Ref: r(2), Generation: 0},
		{Kind: Manifest, Ref: r(3), Generation: 1, Previous: r(2), Restores: r(2)},
	} {
		if _, err := encode(Entry{Header: h}); err == nil {
			t.Errorf("%+v: no error", h)
		}
	}
}

// FuzzDecode checks that whatever is decoded is what encode makes of it.
func FuzzDecode(f *testing.F) {
	for file := range stored {
		b, err := os.ReadFile("testdata/" + file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decode(b)
		if err != nil {
			return
		}
		if again, err := encode(e); err != nil || !bytes.Equal(again, b) {
			t.Errorf("decode accepts %x, encode makes %x, %v", b, again, err)
		}
	})
}
