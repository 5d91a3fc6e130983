package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// wakes counts how often a parker was woken.
type wakes struct{ n int }

func (w *wakes) Park(eventtime.Time) { panic("a test does not wait") }
func (w *wakes) Wake()               { w.n++ }
func (w *wakes) Yield()              {}

// box is an inbox with short forms.
type box struct {
	*inbox
	t     *testing.T
	owner *wakes
}

func newBox(t *testing.T, channels, room int) box {
	owner := &wakes{}
	return box{newInbox(channels, room, owner), t, owner}
}

// one is a batch with a number.
type one int

func (one) Len() int                      { return 1 }
func (o one) Clone() kernel.Batch         { return o }
func (o one) Slice(int, int) kernel.Batch { return o }
func (o one) KeyAt(int) (any, bool)       { return nil, false }

func (b box) batch(i, n int) {
	b.t.Helper()
	b.must(i, Item{kind: itemBatch, batch: one(n)}, false)
}

func (b box) status(i int, w eventtime.Time) {
	b.t.Helper()
	b.must(i, Item{kind: itemStatus, watermark: w}, false)
}

func (b box) barrier(i int, checkpoint int64) {
	b.t.Helper()
	b.must(i, Item{kind: itemBarrier, checkpoint: checkpoint}, false)
}

func (b box) must(i int, it Item, force bool) {
	b.t.Helper()
	if ok, err := b.push(i, it, nil, force); !ok || err != nil {
		b.t.Fatalf("push %s: %v, %v", it, ok, err)
	}
}

// want compares what is queued in a channel.
func (b box) want(i int, want string) {
	b.t.Helper()
	if got := fmt.Sprint(b.queued(i, 1<<62, nil)); got != want {
		b.t.Errorf("channel %d holds %s, want %s", i, got, want)
	}
}

func (b box) pops(want string) {
	b.t.Helper()
	got := "nothing"
	if p, ok := b.pop(false); ok {
		got = fmt.Sprintf("%d:%s", p.channel, p.Item)
	}
	if got != want {
		b.t.Errorf("popped %s, want %s", got, want)
	}
}

func (it Item) String() string {
	switch it.kind {
	case itemBatch:
		return fmt.Sprintf("batch%d", it.batch)
	case itemStatus:
		if it.idle {
			return fmt.Sprintf("idle@%d", int64(it.watermark))
		}
		return fmt.Sprintf("@%d", int64(it.watermark))
	case itemBarrier:
		return fmt.Sprintf("|%d", it.checkpoint)
	}
	return "end"
}

func TestInboxIsFairBetweenChannels(t *testing.T) {
	b := newBox(t, 3, 8)
	for n := range 2 {
		b.batch(0, n)
		b.batch(1, 10+n)
	}
	b.batch(2, 20)
	for _, want := range []string{"0:batch0", "1:batch10", "2:batch20", "0:batch1", "1:batch11", "nothing"} {
		b.pops(want)
	}
}

func TestNewerStatusReplacesAnOlderOneThatNothingFollows(t *testing.T) {
	b := newBox(t, 1, 8)
	b.status(0, 1)
	b.status(0, 2)
	b.must(0, Item{kind: itemStatus, watermark: 2, idle: true}, false)
	b.want(0, "[idle@2]")
	b.batch(0, 1)
	b.status(0, 3)
	b.status(0, 4)
	b.want(0, "[idle@2 batch1 @4]")
	b.barrier(0, 1)
	b.status(0, 5)
	b.want(0, "[idle@2 batch1 @4 |1 @5]")
}

// What precedes a mark belongs to the snapshot: a status behind it must not get in front.
func TestStatusIsNotReplacedAcrossAMark(t *testing.T) {
	b := newBox(t, 1, 8)
	b.batch(0, 1)
	b.status(0, 1)
	if err := b.overtake(0, 7); err != nil {
		t.Fatal(err)
	}
	b.status(0, 2)
	b.status(0, 3)
	b.want(0, "[batch1 @1 @3]")
	if got := fmt.Sprint(b.queued(0, b.markOf(0).seq, nil)); got != "[batch1 @1]" {
		t.Errorf("%s are before the mark", got)
	}
	// Likewise when a queued barrier becomes the mark.
	b = newBox(t, 1, 8)
	b.status(0, 1)
	b.barrier(0, 8)
	if !b.barrierToMark(0, 8) {
		t.Fatal("the barrier was not found")
	}
	b.status(0, 2)
	b.want(0, "[@1 @2]")
}

func TestMarkStandsBehindWhatWasQueued(t *testing.T) {
	b := newBox(t, 2, 1)
	b.batch(0, 1)
	b.pops("0:batch1") // sequence numbers do not start at the head
	b.batch(0, 2)
	b.status(0, 5)
	if err := b.overtake(0, 3); err != nil {
		t.Fatal(err)
	}
	b.must(0, Item{kind: itemBatch, batch: one(3)}, true)
	if m := b.markOf(0); m != (mark{3, 3}) {
		t.Errorf("mark is %+v", m)
	}
	if got := fmt.Sprint(b.queued(0, b.markOf(0).seq, nil)); got != "[batch2 @5]" {
		t.Errorf("%s are before the mark", got)
	}
	if m := b.markOf(1); m.checkpoint != 0 {
		t.Errorf("the other channel has the mark %+v", m)
	}
}

// An owner that has not looked at a mark must not process what is behind it. The mark may come between its
// look and its pop.
func TestNothingIsPoppedWhileAMarkWaits(t *testing.T) {
	b := newBox(t, 2, 8)
	b.batch(1, 1)
	if _, overtaking, err := b.control(nil); overtaking || err != nil {
		t.Fatal(overtaking, err)
	}
	woken := b.owner.n
	if err := b.overtake(0, 1); err != nil {
		t.Fatal(err)
	}
	b.batch(0, 2)
	b.pops("nothing")
	if _, ok := b.pop(true); ok {
		t.Error("a barrier was popped")
	}
	if b.owner.n == woken {
		t.Error("the owner was not woken")
	}
	if urgent, err := b.urgent(); !urgent || err != nil {
		t.Error("the owner would wait for room", err)
	}
	if _, overtaking, err := b.control(nil); !overtaking || err != nil {
		t.Fatal(overtaking, err)
	}
	b.pops("0:batch2")
	b.post(mail{trigger: 2, overtake: true})
	b.pops("nothing")
}

func TestQueuedBarrierBecomesAMark(t *testing.T) {
	b := newBox(t, 1, 8)
	b.batch(0, 1)
	b.pops("0:batch1")
	b.batch(0, 2)
	b.barrier(0, 4)
	b.batch(0, 3)
	b.status(0, 9)
	if !b.hasBarrier(4) || b.hasBarrier(5) || b.barrierToMark(0, 5) {
		t.Error("barrier 4 is queued, barrier 5 is not")
	}
	if !b.barrierToMark(0, 4) {
		t.Fatal("the barrier was not found")
	}
	b.want(0, "[batch2 batch3 @9]")
	if got := fmt.Sprint(b.queued(0, b.markOf(0).seq, nil)); got != "[batch2]" {
		t.Errorf("%s are before the mark", got)
	}
	if b.hasBarrier(4) || b.barrierToMark(0, 4) {
		t.Error("the barrier is still queued")
	}
	for _, want := range []string{"0:batch2", "0:batch3", "0:@9", "nothing"} {
		b.pops(want)
	}
}

func TestSenderWaitsForRoomAndIsWokenOnce(t *testing.T) {
	b := newBox(t, 2, 2)
	sender := &wakes{}
	b.batch(0, 1)
	b.batch(0, 2)
	if ok, err := b.push(0, Item{kind: itemBatch, batch: one(3)}, sender, false); ok || err != nil {
		t.Fatalf("a third batch was taken: %v, %v", ok, err)
	}
	b.batch(1, 9) // another channel has room of its own
	b.status(0, 1)
	b.barrier(0, 1)
	b.must(0, Item{kind: itemEnd}, false)
	b.must(0, Item{kind: itemBatch, batch: one(4)}, true)
	b.want(0, "[batch1 batch2 @1 |1 end batch4]")
	b.hold(1, true)
	b.pops("0:batch1")
	if sender.n != 0 {
		t.Error("the sender was woken although the channel is full, beyond its room even")
	}
	b.pops("0:batch2")
	if sender.n != 1 {
		t.Errorf("the sender was woken %d times", sender.n)
	}
	b.pops("0:@1")
	if sender.n != 1 {
		t.Errorf("the sender was woken %d times", sender.n)
	}
}

func TestRoomIsAtLeastOneBatch(t *testing.T) {
	b := newBox(t, 1, 0)
	b.batch(0, 1)
	if ok, _ := b.push(0, Item{kind: itemBatch, batch: one(2)}, &wakes{}, false); ok {
		t.Error("a second batch was taken")
	}
}

func TestHeldChannelIsSkipped(t *testing.T) {
	b := newBox(t, 2, 8)
	b.batch(0, 1)
	b.batch(1, 2)
	b.hold(0, true)
	b.pops("1:batch2")
	b.pops("nothing")
	b.hold(0, false)
	b.pops("0:batch1")
}

func TestOnlyABarrierIsPoppedWhileElementsWait(t *testing.T) {
	b := newBox(t, 3, 8)
	b.batch(0, 1)
	b.barrier(0, 1)
	b.status(1, 1)
	if p, ok := b.pop(true); ok {
		t.Errorf("popped %s", p.Item)
	}
	b.barrier(2, 1)
	if p, ok := b.pop(true); !ok || p.channel != 2 || p.kind != itemBarrier {
		t.Errorf("popped %s, %v", p.Item, ok)
	}
}

func TestRestoredItemsGoBeforeWhatWasPushedAlready(t *testing.T) {
	b := newBox(t, 1, 8)
	b.batch(0, 3)
	if err := b.overtake(0, 1); err != nil {
		t.Fatal(err)
	}
	b.batch(0, 4)
	b.prepend(0, []Item{{kind: itemBatch, batch: one(1)}, {kind: itemStatus, watermark: 2}})
	b.want(0, "[batch1 @2 batch3 batch4]")
	if got := fmt.Sprint(b.queued(0, b.markOf(0).seq, nil)); got != "[batch1 @2 batch3]" {
		t.Errorf("%s are before the mark", got)
	}
	// A channel grows beyond its first ring without mixing its order.
	b = newBox(t, 1, 1)
	for n := range 5 {
		b.must(0, Item{kind: itemBatch, batch: one(n)}, true)
	}
	b.pops("0:batch0")
	b.pops("0:batch1")
	for n := 5; n < 20; n++ {
		b.must(0, Item{kind: itemBatch, batch: one(n)}, true)
	}
	for n := 2; n < 20; n++ {
		b.pops(fmt.Sprintf("0:batch%d", n))
	}
}

func TestStoppedInboxRefusesAndWakesAll(t *testing.T) {
	b := newBox(t, 1, 1)
	sender := &wakes{}
	b.batch(0, 1)
	if ok, _ := b.push(0, Item{kind: itemBatch, batch: one(2)}, sender, false); ok {
		t.Fatal("there is no room")
	}
	woken := b.owner.n
	first := errors.New("first")
	b.stop(first)
	b.stop(errors.New("second"))
	if sender.n != 1 || b.owner.n == woken {
		t.Error("somebody sleeps on")
	}
	if _, err := b.push(0, Item{kind: itemEnd}, nil, true); err != first {
		t.Errorf("push: %v", err)
	}
	if err := b.overtake(0, 1); err != first {
		t.Errorf("overtake: %v", err)
	}
	if _, _, err := b.control(nil); err != first {
		t.Errorf("control: %v", err)
	}
	if _, err := b.urgent(); err != first {
		t.Errorf("urgent: %v", err)
	}
}

func TestMailIsDeliveredOnceInOrder(t *testing.T) {
	b := newBox(t, 0, 1)
	b.post(mail{trigger: 4})
	b.post(mail{trigger: 3})
	b.post(mail{stop: true})
	if n := b.triggerWaiting(); n != 4 {
		t.Errorf("newest checkpoint in the mail is %d", n)
	}
	ms, overtaking, err := b.control(nil)
	if !slices.Equal(ms, []mail{{trigger: 4}, {trigger: 3}, {stop: true}}) || overtaking || err != nil {
		t.Errorf("%v, %v, %v", ms, overtaking, err)
	}
	if ms, _, _ := b.control(ms); len(ms) != 0 || b.triggerWaiting() != 0 {
		t.Errorf("again: %v", ms)
	}
}
