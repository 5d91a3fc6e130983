package triggering

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
)

func compile(t testing.TB, tr trigger.Trigger) *Machine {
	t.Helper()
	if err := trigger.Validate(tr); err != nil {
		t.Fatal(err)
	}
	return Compile(trigger.Canonical(tr))
}

// TestStateIsEncodedAsDocumented: the examples of docs/format/trigger-state.md, there and back.
func TestStateIsEncodedAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/format/trigger-state.md")
	if err != nil {
		t.Fatal(err)
	}
	m := compile(t, trigger.AfterWatermark().Early(trigger.AfterProcessingTime(time.Second)).Late(trigger.AfterCount(3)))
	var s State
	check := func(want string) {
		t.Helper()
		got := m.Append(nil, &s)
		if fmt.Sprintf("%x", got) != want || !strings.Contains(string(page), "`"+want+"`") {
			t.Errorf("encoded %x, not %s, or the page does not have it", got, want)
		}
		back, rest, err := m.Decode(append(got, 7))
		if err != nil || len(rest) != 1 || fmt.Sprintf("%#v", back) != fmt.Sprintf("%#v", s) {
			t.Errorf("%x came back as %#v, %d bytes left, %v; it was %#v", got, back, len(rest), err, s)
		}
	}
	check("00")
	now := Now{End: 10_000, Watermark: eventtime.Min, Clock: 1000}
	m.Element(&s, now)
	check("0100a11f00")
	now.Watermark = 10_000
	m.Fired(&s, now)
	m.Element(&s, now)
	m.Element(&s, now)
	check("0101a11f02")
}

func TestMalformedStateIsRefused(t *testing.T) {
	m := compile(t, trigger.AfterWatermark().Early(trigger.Repeatedly(trigger.OrFinally(trigger.Always(), trigger.AfterProcessingTime(0)))))
	good := []byte{1, 0, 0, 3, 5}
	if _, rest, err := m.Decode(good); err != nil || len(rest) != 0 {
		t.Fatalf("%x: %v, %d bytes left", good, err, len(rest))
	}
	for i := range good {
		if _, rest, err := m.Decode(good[:i]); err == nil || len(rest) != i {
			t.Errorf("%x, cut short, is taken", good[:i])
		}
	}
	big := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}
	over := append(append([]byte{}, big...), 1)
	for what, b := range map[string][]byte{
		"a first byte of 2":                      {2, 0, 0, 0, 0},
		"a bit of a node that is never finished": {1, 4, 0, 0, 0},
		"a bit of no node":                       {1, 0x80, 1, 0, 0, 0},
		"a negative count":                       append([]byte{1, 0}, append(big, 0, 0)...),
		"a varint of more than 64 bits":          append([]byte{1}, append(over, 0, 0, 0)...),
		"a time out of range":                    append([]byte{1, 0, 0}, append(big, 0)...),
	} {
		if s, rest, err := m.Decode(b); err == nil || len(rest) != len(b) || s.Slots != nil {
			t.Errorf("%s is taken for %v, %d of %d bytes left", what, s, len(rest), len(b))
		}
	}
}

func FuzzDecode(f *testing.F) {
	m := compile(f, trigger.AfterWatermark().Early(trigger.AfterProcessingTime(time.Second)).Late(trigger.AfterCount(3)))
	f.Add([]byte{1, 1, 0xa1, 0x1f, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := m.Decode(b)
		if err != nil {
			return
		}
		again, left, err := m.Decode(m.Append(nil, &s))
		if err != nil || len(left) != 0 || fmt.Sprint(again) != fmt.Sprint(s) {
			t.Errorf("%x, with %d bytes left, is %v, and that encoded is %v, %v", b, len(rest), s, again, err)
		}
	})
}
