package fieldtest

import (
	"testing"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

// latest is a strategy of a user's own: the watermark is the latest timestamp.
type latest struct{ t time.Time }

func (latest) New() watermark.Generator { return &latest{time.Unix(0, 0)} }

func (l *latest) Observe(t time.Time) {
	if t.After(l.t) {
		l.t = t
	}
}

func (l *latest) Watermark() time.Time { return l.t }

// One element with a time beyond all, such as microseconds taken for seconds, is not the end of time: the global window takes what
// follows, whoever makes the watermark.
func TestATimeBeyondAllDoesNotEndTheGlobalWindow(t *testing.T) {
	far := time.Unix(1<<60, 0)
	for _, s := range []watermark.Strategy{watermark.Monotonic(), &latest{}} {
		ptest.Run(t, func(p *sdk.Pipeline) error {
			in := memio.Read("in", p, []time.Time{time.UnixMilli(1), far, time.UnixMilli(5), far}, sdk.EventTime(func(t time.Time) time.Time { return t }, s))
			keyed := sdk.Map("key", in, func(time.Time) string { return "k" })
			passert.Equals("all", stats.Count("count", keyed), sdk.Pair("k", int64(4)))
			return nil
		})
	}
}
