package checkpoint

import (
	"bytes"
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/internal/engine"
	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/statebackend"
)

var update = flag.Bool("checkpoint.update", false, "write the stored example anew")

// example has every field that a manifest can have.
func example() *Manifest {
	ref := func(name string, size int64) statebackend.Ref {
		return statebackend.Ref{Object: "shared/3/1/" + name, Size: size, CRC32C: 0xdecade00 + uint32(size)}
	}
	bulk := ref("7/N-bulk", 9000)
	return &Manifest{
		Job: "flights", StatePlan: "state 1 groups=8\n", Streams: "stage \"sum\" of 2\n", KeyGroups: 8, Parallelism: 2,
		Time:  time.UnixMilli(1_700_000_000_123).UTC(),
		Flags: Flags{Salt: []byte("0123456789abcdef"), Digests: []FlagDigest{{"input", [32]byte{1, 31: 2}}, {"rate", [32]byte{3}}}},
		Checkpoint: Checkpoint{ID: 7, Parts: []Part{{
			Checkpoint: 7, Stage: "read", Subtask: 1,
			Merger: engine.MergerState{Merged: eventtime.Min},
			Nodes:  []NodePart{{Node: "read", Watermark: eventtime.Max, Blob: []byte{1, 2, 3}}},
		}, {
			Checkpoint: 7, Stage: "sum", Subtask: 0,
			Merger:   engine.MergerState{Merged: -5, Inputs: []eventtime.Time{-5, 12}},
			Channels: [][]byte{nil, []byte("recorded")},
			Nodes: []NodePart{{Node: "sum", Watermark: -5, Keyed: &Keyed{
				Base: &Base{Checkpoint: 5, Companion: ref("5/N-companion", 17), Handle: statebackend.Handle{
					Driver: "memory", Version: 1, KeyGroups: statebackend.KeyGroupRange{First: 0, End: 4},
					Files: []statebackend.File{{Name: "000007.sst", ID: "id", Ref: ref("5/N-000007.sst", 1)}},
				}},
				Deltas: []Delta{{Checkpoint: 6, Ref: ref("6/N-delta", 20)}, {Checkpoint: 7, Ref: ref("7/N-delta", 30)}},
			}}, {Node: "write", Watermark: -5}},
		}, {Checkpoint: 7, Stage: "sum", Subtask: 1, Bulk: &bulk}}},
		Pending: []Output{
			{"write", Prepared{Checkpoint: 6, Committables: [][]byte{[]byte("part-6-0")}}},
			{"write", Prepared{Checkpoint: 7, Committables: [][]byte{[]byte("part-7-0"), nil}}},
		},
	}
}

// TestOlderManifestsAreReadBack: version 2 has no streams, and version 1 no flags either.
func TestOlderManifestsAreReadBack(t *testing.T) {
	stored, err := os.ReadFile("testdata/manifest-v2.bin")
	if err != nil {
		t.Fatal(err)
	}
	second, err := DecodeManifest(stored)
	if err != nil {
		t.Fatal(err)
	}
	want2 := example()
	want2.Streams = ""
	if diff := cmp.Diff(want2, second); diff != "" {
		t.Errorf("the stored manifest of version 2 reads otherwise (-want +got):\n%s", diff)
	}
	stored, err = os.ReadFile("testdata/manifest-v1.bin")
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeManifest(stored)
	if err != nil {
		t.Fatal(err)
	}
	want := example()
	want.Flags, want.Streams = Flags{}, ""
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the stored manifest reads otherwise (-want +got):\n%s", diff)
	}
	if changed, added, gone := got.Flags.Differ(map[string]string{"input": "x"}); changed != nil || added != nil || gone != nil {
		t.Errorf("it knows no flags, and says of them %v, %v, %v", changed, added, gone)
	}
}

func TestStoredManifestIsReadBack(t *testing.T) {
	const name = "testdata/manifest-v3.bin"
	want := example()
	encoded, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(name, encoded, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeManifest(stored)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the stored manifest reads otherwise (-want +got):\n%s", diff)
	}
	if !bytes.Equal(encoded, stored) {
		t.Errorf("the example is encoded differently today: a new version is needed, or the old bytes")
	}
}

// TestDamagedManifestIsRefused flips every bit and cuts at every length.
func TestDamagedManifestIsRefused(t *testing.T) {
	b, err := example().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for n := range b {
		if _, err := DecodeManifest(b[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were read without an error", n, len(b))
		}
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[n] ^= 1 << bit
			if _, err := DecodeManifest(bad); err == nil {
				t.Fatalf("bit %d of byte %d was flipped unnoticed", bit, n)
			}
		}
	}
}

// FuzzDecode gives the decoders bytes with a right checksum, since chance would not find one.
func FuzzDecode(f *testing.F) {
	b, err := example().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[5:len(b)-4], true)
	p, err := AppendPart(nil, &example().Checkpoint.Parts[1])
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p, false)
	f.Fuzz(func(t *testing.T, body []byte, newest bool) {
		if p, err := DecodePart(body); err == nil {
			again, err := AppendPart(nil, &p)
			if err != nil {
				t.Fatalf("a part that was decoded cannot be encoded: %v", err)
			}
			if q, err := DecodePart(again); err != nil || cmp.Diff(p, q) != "" {
				t.Fatalf("a part does not come back: %v", err)
			}
		}
		b := append([]byte("MSCP"), 1)
		if newest {
			b[4] = manifestVersion
		}
		b = append(b, body...)
		crc := statebackend.Checksum(0, b)
		b = append(b, byte(crc>>24), byte(crc>>16), byte(crc>>8), byte(crc))
		m, err := DecodeManifest(b)
		if err != nil {
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatalf("a manifest that was decoded cannot be encoded: %v", err)
		}
		if n, err := DecodeManifest(again); err != nil || cmp.Diff(m, n) != "" {
			t.Fatalf("a manifest does not come back: %v", err)
		}
	})
}

// TestLargePartsLieInTheirOwnObject: recorded input and blobs come back, wherever they are kept.
func TestLargePartsLieInTheirOwnObject(t *testing.T) {
	for _, size := range []int{0, 100, maxInline + 1} {
		var store MemoryStore
		p := Part{
			Checkpoint: 3, Stage: "s", Subtask: 1,
			Channels: [][]byte{nil, bytes.Repeat([]byte{7}, size)},
			Nodes:    []NodePart{{Node: "a", Blob: []byte("blob")}, {Node: "b"}},
		}
		want := Part{Channels: p.Channels, Nodes: append([]NodePart(nil), p.Nodes...)}
		if err := p.spill(context.Background(), &store); err != nil {
			t.Fatal(err)
		}
		if stored := p.Bulk != nil; stored != (size > maxInline) {
			t.Errorf("%d bytes: in an object of their own: %v", size, stored)
		}
		c := &Checkpoint{ID: 3, Parts: []Part{p}}
		r, err := c.Restore(context.Background(), &store, "s", 1)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.Channels, r.Channels); diff != "" {
			t.Errorf("%d bytes: channels (-want +got):\n%s", size, diff)
		}
		if got := r.Nodes["a"].Blob; string(got) != "blob" || len(r.Nodes["b"].Blob) != 0 {
			t.Errorf("%d bytes: the blobs are %q and %q", size, got, r.Nodes["b"].Blob)
		}
	}
}
