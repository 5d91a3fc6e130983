package control

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
)

// Strings of users are anywhere in a message: in fields, lists, maps, and messages in all of these.
func TestSendableMakesEveryStringFit(t *testing.T) {
	const bad, good = "a\xff\xfeb", "a\uFFFDb"
	make := func(s string) []proto.Message {
		return []proto.Message{
			&Failed{Step: s, Error: s, Attempt: 3},
			&FromWorker{Message: &FromWorker_Failed{Failed: &Failed{Error: s}}},
			&Welcome{Args: []string{"x", s}, Env: []string{s}},
			&Heartbeat{Steps: []*StepMetrics{{Step: "x"}, {Step: s, Figures: &Figures{
				Counters: map[string]int64{s: 7, "n": 2}, Gauges: map[string]*Reading{s: {Value: 1}}, Histograms: map[string]*Buckets{s: {Counts: []int64{1}}},
			}}}},
			&Ack{Part: []byte{0xff, 0xfe}}, // bytes stay
		}
	}
	want := make(good)
	for i, m := range make(bad) {
		if _, err := proto.Marshal(m); (err == nil) != (i == len(want)-1) {
			t.Errorf("%T: the message is not one that cannot be sent: %v", m, err)
		}
		data, err := proto.Marshal(Sendable(m))
		if err != nil {
			t.Errorf("%T: %v", m, err)
			continue
		}
		back := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(data, back); err != nil {
			t.Errorf("%T: %v", m, err)
		}
		if d := cmp.Diff(want[i], back, protocmp.Transform()); d != "" {
			t.Errorf("%T: -want +got\n%s", m, d)
		}
	}
}
