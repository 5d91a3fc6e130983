package kernel

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// onPage checks that encoded is the examples of a page of docs/format, one after another.
func onPage(t *testing.T, page string, encoded []byte, examples ...string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/format/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		if !strings.Contains(string(text), "`"+e+"`") {
			t.Errorf("%s does not have the example %s", page, e)
		}
	}
	if got, want := hex.EncodeToString(encoded), strings.Join(examples, ""); got != want {
		t.Errorf("encoded\n%s, but %s says\n%s", got, page, want)
	}
}

func coderOf[T any](t *testing.T) coder.Coder[T] {
	t.Helper()
	c, err := coder.Of[T]()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBatchIsEncodedAsDocumented(t *testing.T) {
	w := window.New(0, 1000)
	onTime := MakePane(window.Pane{Timing: window.OnTime, First: true})
	b, err := NewCodec(coderOf[string](t)).Append(nil, &Rows[string]{[]Element[string]{{"a", 5, w, NoPane}, {"b", 3, w, onTime}}})
	if err != nil {
		t.Fatal(err)
	}
	onPage(t, "batch.md", b, "02", "0a00d00f000161", "03000086808080400162")
}

func TestSourceStateIsEncodedAsDocumented(t *testing.T) {
	o := &sourceOp[int, string]{SourceSpec: SourceSpec[int, string]{Split: coderOf[string](t)}}
	o.splits = []*split[string]{{at: "x", started: true, watermark: 1000}, {at: "y", watermark: eventtime.Min}}
	s, err := o.Snapshot(1, false)
	if err != nil {
		t.Fatal(err)
	}
	onPage(t, "source-state.md", s.Blob, "01d00f020178", "00edcf9adef4a6e220020179")
}

func TestTableEntryIsEncodedAsDocumented(t *testing.T) {
	table := &Table[string, int]{acc: coderOf[int](t)}
	e := &entry[string, int]{acc: 200}
	e.header = header{since: 3, panes: 2, early: 1, onTime: true}
	b, err := table.encodeValue(e)
	if err != nil {
		t.Fatal(err)
	}
	onPage(t, "table-entry.md", b, "03020101c801")
}

func TestPanesAreEncodedAsDocumented(t *testing.T) {
	l := &windowList[int, string]{wake: 2000, clock: noTime, hold: noTime, open: []openWindow[int, string]{{win: window.New(1000, 2000), header: header{since: 3}, acc: 200}}}
	c := windowListCoder[int, string]{acc: coderOf[int](t)}
	b, err := c.Append(nil, l)
	if err != nil {
		t.Fatal(err)
	}
	onPage(t, "panes.md", b, "00000000000007d001d00fe80703000000c801")
	list, rest, err := c.Decode(b)
	got, ok := list.(*windowList[int, string])
	if err != nil || !ok || len(rest) > 0 || got.wake != l.wake || len(got.open) != 1 || got.open[0] != l.open[0] {
		t.Errorf("decoded %+v, %x, %v", got, rest, err)
	}
	for i := range b {
		if _, _, err := c.Decode(b[:i]); err == nil {
			t.Errorf("%d of %d bytes decoded", i, len(b))
		}
	}
}
