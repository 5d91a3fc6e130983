package trigger

import (
	"strings"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	chain := func(n int, wrap func(Trigger) Trigger) Trigger {
		tr := Trigger(AfterCount(1))
		for range n - 1 {
			tr = wrap(tr)
		}
		return tr
	}
	all := func(t Trigger) Trigger { return AfterAll(t) }
	each := func(t Trigger) Trigger { return AfterEach(t) }
	for _, c := range []struct {
		t    Trigger
		want string // a part of the message; "": valid
	}{
		{AfterWatermark(), ""},
		{AfterWatermark().Early(AfterFirst(AfterCount(3), AfterProcessingTime(time.Second).AlignedTo(time.Minute, time.Second))).Late(Always()), ""},
		{AfterSynchronizedProcessingTime(), ""},
		{Never(), ""},
		{Default(), ""},
		{chain(64, all), ""},
		{chain(65, all), "65 parts"},
		{chain(33, each), "65 parts"}, // each part becomes two in the continuation
		{chain(32, each), ""},
		{AfterWatermark().Early(chain(62, all)), ""},
		{AfterWatermark().Early(chain(63, all)), "65 parts"}, // with AfterCount(1) for late elements
		{nil, "no trigger given"},
		{AfterCount(0), "at least 1"},
		{AfterCount(1<<31 - 1), ""},
		{Count{1 << 31}, "at most 2147483647"},
		{AfterWatermark().Late(AfterCount(-1)), "at least 1"},
		{AfterWatermark().Early(AfterCount(0)), "at least 1"},
		{AfterProcessingTime(-time.Second), "must not be negative"},
		{AfterProcessingTime(time.Microsecond), "whole milliseconds"},
		{AfterProcessingTime(0).AlignedTo(-time.Second, 0), "must not be negative"},
		{AfterProcessingTime(0).AlignedTo(time.Second, time.Nanosecond), "whole milliseconds"},
		{AfterFirst(), "AfterFirst of nothing"},
		{AfterAll(), "AfterAll of nothing"},
		{AfterEach(), "AfterEach of nothing"},
		{AfterEach(AfterCount(1), nil), "no trigger given"},
		{OrFinally(Always(), nil), "no trigger given"},
		{OrFinally(AfterAll(), Never()), "AfterAll of nothing"},
		{Repeatedly(nil), "no trigger given"},
	} {
		err := Validate(c.t)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: %v", c.t, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: %v, want %q", c.t, err, c.want)
		}
	}
}

func TestMayLoseData(t *testing.T) {
	count, delay := AfterCount(2), AfterProcessingTime(time.Second)
	for _, tr := range []Trigger{
		AfterWatermark(), AfterWatermark().Early(count), Default(), Never(), Always(), Repeatedly(count),
		AfterEach(count, Repeatedly(delay)), AfterEach(Never(), count), AfterAll(count, Never()), AfterFirst(Never(), AfterAll(Never(), count)),
		OrFinally(Repeatedly(count), Never()), OrFinally(AfterWatermark().Late(count), AfterEach(Never(), count)),
		Repeatedly(AfterFirst(count, AfterWatermark())), OrFinally(Always(), Repeatedly(Never())), AfterEach(AfterWatermark().Late(delay), count),
	} {
		if why := MayLoseData(tr); why != "" {
			t.Errorf("%v: %s", tr, why)
		}
	}
	for _, tr := range []Trigger{
		count, delay, AfterSynchronizedProcessingTime(), AfterEach(count, delay), AfterFirst(Never(), count), AfterAll(count, delay),
		AfterAll(Repeatedly(count), delay), AfterFirst(Always()), OrFinally(Repeatedly(count), AfterWatermark()), OrFinally(count, Never()),
		OrFinally(Never(), Repeatedly(count)), AfterEach(AfterWatermark(), count), AfterEach(AfterWatermark().Early(count), count),
		AfterFirst(AfterWatermark().Late(count)), AfterFirst(AfterEach(count, Repeatedly(count))),
	} {
		why := MayLoseData(tr)
		if !strings.HasPrefix(why, tr.String()+" may finish") || !strings.Contains(why, "Repeatedly") {
			t.Errorf("%v: %q", tr, why)
		}
	}
}

func TestContinuation(t *testing.T) {
	count, delay, sync := AfterCount(2), AfterProcessingTime(time.Second), AfterSynchronizedProcessingTime()
	one := AfterCount(1)
	for _, c := range []struct{ of, want Trigger }{
		{AfterWatermark(), AfterWatermark().Late(one)},
		{Default(), AfterWatermark().Late(one)},
		{AfterWatermark().Early(delay).Late(count), AfterWatermark().Early(sync).Late(one)},
		{AfterWatermark().Early(AfterEach(count, delay)), AfterWatermark().Early(AfterFirst(one, sync)).Late(one)},
		{count, one},
		{delay.AlignedTo(time.Minute, 0), sync},
		{sync, sync},
		{Never(), Never()},
		{Always(), Always()},
		{AfterFirst(count, AfterWatermark()), AfterFirst(one, AfterWatermark())},
		{AfterAll(count, AfterWatermark().Early(delay)), AfterAll(one, AfterWatermark().Early(sync))},
		{AfterEach(count, delay), Repeatedly(AfterFirst(one, sync))},
		{OrFinally(count, delay), Repeatedly(OrFinally(one, sync))},
		{Repeatedly(count), Repeatedly(one)},
		{Repeatedly(OrFinally(Repeatedly(count), delay)), Repeatedly(OrFinally(Repeatedly(one), sync))},
	} {
		got := Continuation(c.of)
		if got.String() != c.want.String() {
			t.Errorf("of %v: %v, want %v", c.of, got, c.want)
		}
		if again := Continuation(got); again.String() != got.String() {
			t.Errorf("of %v: %v, and of that %v", c.of, got, again)
		}
	}
}
