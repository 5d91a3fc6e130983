package engine

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

func stringCodec(tb testing.TB) *kernel.Codec[string] {
	c, err := coder.Of[string]()
	if err != nil {
		tb.Fatal(err)
	}
	return kernel.NewCodec(c)
}

func stringRows(values ...string) *kernel.Rows[string] {
	r := &kernel.Rows[string]{}
	for i, v := range values {
		r.E = append(r.E, kernel.Element[string]{Value: v, Window: window.New(0, 10), Pane: kernel.Pane(i)})
	}
	return r
}

func someItems() []Item {
	return []Item{
		{kind: itemStatus, watermark: -5}, {kind: itemStatus, idle: true, watermark: 1 << 40},
		{kind: itemBatch, batch: stringRows("a", strings.Repeat("long", 100))}, {kind: itemBarrier, checkpoint: 300},
		Overtaking(301), {kind: itemBatch, batch: stringRows()}, {kind: itemEnd},
	}
}

func TestItemsComeBackFromTheirEncoding(t *testing.T) {
	codec := stringCodec(t)
	var src []byte
	for _, it := range someItems() {
		var err error
		if src, err = it.Append(src, codec); err != nil {
			t.Fatal(err)
		}
	}
	rest := bytes.Clone(src)
	var again []byte
	var got []Item
	for len(rest) > 0 {
		it, r, err := decodeItem(rest, codec)
		if err != nil {
			t.Fatal(err)
		}
		got, rest = append(got, it), r
	}
	for i, want := range someItems() {
		if got[i].kind != want.kind || got[i].idle != want.idle || got[i].watermark != want.watermark || got[i].checkpoint != want.checkpoint {
			t.Errorf("item %d: got %+v, want %+v", i, got[i], want)
		}
		var err error
		if again, err = got[i].Append(again, codec); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != len(someItems()) || !bytes.Equal(again, src) {
		t.Errorf("%d items that encode to %x; want %d, %x", len(got), again, len(someItems()), src)
	}
}

func TestAppendingAnItemAllocatesNothing(t *testing.T) {
	codec, buf := stringCodec(t), make([]byte, 0, 4096)
	for i, it := range someItems() {
		if n := testing.AllocsPerRun(100, func() { buf, _ = it.Append(buf[:0], codec) }); n != 0 {
			t.Errorf("item %d: %v allocations", i, n)
		}
	}
}

// Markers of the wire have no place in a checkpoint: a barrier there would start an alignment.
func TestRecordedItemsAreBatchesAndStatuses(t *testing.T) {
	codec := stringCodec(t)
	for _, it := range someItems() {
		src, err := it.Append(nil, codec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := recordedItems(src, codec); (err == nil) != (it.kind == itemBatch || it.kind == itemStatus) {
			t.Errorf("%s from a checkpoint: %v", it, err)
		}
	}
}

// FuzzItems: hostile items are an error, and what is accepted encodes to the same items again.
func FuzzItems(f *testing.F) {
	codec := stringCodec(f)
	for _, it := range someItems() {
		src, err := it.Append(nil, codec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		for len(src) > 0 {
			it, rest, err := decodeItem(src, codec)
			if err != nil {
				return
			}
			if len(rest) >= len(src) {
				t.Fatalf("%x: nothing was read", src)
			}
			b, err := it.Append(nil, codec)
			if err != nil {
				t.Fatalf("%x cannot be encoded again: %v", src, err)
			}
			if back, _, err := decodeItem(b, codec); err != nil || back.kind != it.kind || back.checkpoint != it.checkpoint || back.watermark != it.watermark {
				t.Fatalf("%x came back as %+v, %v; want %+v", b, back, err, it)
			}
			src = rest
		}
	})
}

// panicking is a codec whose coder panics.
type panicking struct{ kernel.BatchCodec }

func (panicking) Decode([]byte) (kernel.Batch, error) { panic("out of order") }

// A coder may be a user's. What comes from another process is decoded by the transport, which no step's guard is around.
func TestAPanicOfACoderIsAnErrorOfTheReceiver(t *testing.T) {
	codec := stringCodec(t)
	b, err := (Item{kind: itemBatch, batch: stringRows("a")}).Append(nil, codec)
	if err != nil {
		t.Fatal(err)
	}
	to := &subtask{stage: &Stage{Nodes: []*kernel.Node{{Name: "sum"}}}, index: 2, codecs: []kernel.BatchCodec{panicking{codec}}}
	err = Inbound{to: to}.Deliver(b)
	if err == nil || !strings.Contains(err.Error(), "decode an item for sum/2: panic: out of order") {
		t.Errorf("error %v", err)
	}
}
