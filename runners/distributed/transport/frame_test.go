package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// TestFramesAreEncodedAsDocumented holds the examples of docs/format/data-frames.md against the code. Items are
// the engine's, so a barrier stands here as its bytes.
func TestFramesAreEncodedAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/format/data-frames.md")
	if err != nil {
		t.Fatal(err)
	}
	items := newFrame(frameItems)
	items.b = append(binary.BigEndian.AppendUint32(items.b, 7), 'c', 0xac, 0x02)
	m := &Mesh{}
	p := newPeer(m, "b")
	p.credits = []*receiver{{channel: 7, popped: 2}}
	for _, test := range []struct {
		f    *frame
		want string
	}{
		{items.seal(), "00000008 06 00000007 63ac02"},
		{p.creditFrame(), "00000009 07 00000007 00000002"},
		{newFrame(frameBye).seal(), "00000001 08"},
	} {
		if got := hex.EncodeToString(test.f.b); got != strings.ReplaceAll(test.want, " ", "") || !bytes.Contains(page, []byte("`"+test.want+"`")) {
			t.Errorf("encoded %s; want %s, as on the page", got, test.want)
		}
	}
}

func encodeFrame(t frameType, body []byte) []byte {
	f := newFrame(t)
	f.b = append(f.b, body...)
	return bytes.Clone(f.seal().b)
}

func TestReaderReturnsFramesOfAllSizes(t *testing.T) {
	var stream []byte
	var bodies [][]byte
	for i, n := range []int{0, 1, readAhead - 5, readAhead - 4, readAhead, 5*bigStep + 3, 10, bigStep} {
		body := bytes.Repeat([]byte{byte(i + 1)}, n)
		bodies = append(bodies, body)
		stream = append(stream, encodeFrame(frameType(i), body)...)
	}
	for name, r := range map[string]io.Reader{"whole": bytes.NewReader(stream), "in halves": iotest.HalfReader(bytes.NewReader(stream))} {
		f := newFrameReader(r, 64<<20)
		for i, want := range bodies {
			typ, got, err := f.next()
			if err != nil || typ != frameType(i) || !bytes.Equal(got, want) {
				t.Fatalf("%s: frame %d: type %d, %d bytes, %v; want %d bytes", name, i, typ, len(got), err, len(want))
			}
		}
		if _, _, err := f.next(); err != io.EOF {
			t.Errorf("%s: after the last frame: %v", name, err)
		}
	}
}

func TestReaderTellsTheEndFromACut(t *testing.T) {
	for _, body := range [][]byte{[]byte("abc"), make([]byte, 2*readAhead)} {
		whole := encodeFrame(frameItems, body)
		for _, n := range []int{1, 4, 5, len(whole) - 1} {
			if _, _, err := newFrameReader(bytes.NewReader(whole[:n]), 64<<20).next(); err != io.ErrUnexpectedEOF {
				t.Errorf("%d of %d bytes: %v", n, len(whole), err)
			}
		}
	}
}

// A claim of a great length is worth what comes of it.
func TestReaderGivesNoMemoryForAMereClaim(t *testing.T) {
	claim := append(binary.BigEndian.AppendUint32(nil, 64<<20), make([]byte, 3*readAhead)...)
	f := newFrameReader(bytes.NewReader(claim), 64<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, _, err := f.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4*bigStep {
		t.Errorf("a claim of 64 MiB with %d bytes behind it took %d bytes", len(claim), n)
	}
}

func TestReaderRefusesLengthsBeyondItsLimit(t *testing.T) {
	for _, n := range []uint32{0, maxHandshake + 1, 1 << 31, 1<<32 - 1} {
		src := binary.BigEndian.AppendUint32(nil, n)
		if _, _, err := newFrameReader(bytes.NewReader(append(src, make([]byte, 100)...)), maxHandshake).next(); err == nil || !strings.Contains(err.Error(), "allowed are 1 to 4096") {
			t.Errorf("length %d: %v", n, err)
		}
	}
}

// FuzzFrames: whatever comes, the reader returns what is there or an error.
func FuzzFrames(f *testing.F) {
	f.Add(encodeFrame(frameHello, hello{job: "j", from: "a", to: "b", room: 8}.append(nil)))
	f.Add(append(encodeFrame(frameItems, []byte("abcd")), encodeFrame(frameBye, nil)...))
	f.Add(encodeFrame(frameCredit, make([]byte, 16)))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, src []byte) {
		r := newFrameReader(bytes.NewReader(src), 1<<20)
		var again []byte
		for {
			typ, body, err := r.next()
			if err != nil {
				break
			}
			again = append(again, encodeFrame(typ, body)...)
			if h, err := parseHello(body); err == nil && !bytes.Equal(h.append(nil), body) {
				t.Fatalf("hello %x came back as %x", body, h.append(nil))
			}
			p := newPeer(&Mesh{}, "b")
			p.out[7] = &sender{peer: p, channel: 7}
			if err := p.granted(body, 8); err == nil && p.out[7].credit > 8 {
				t.Fatalf("%d credits of 8", p.out[7].credit)
			}
		}
		if !bytes.HasPrefix(src, again) {
			t.Fatalf("read %x from %x", again, src)
		}
	})
}
