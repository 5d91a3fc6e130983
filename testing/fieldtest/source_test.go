package fieldtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/watermark"
)

// event is a line of a split: an element, a wait for a mark, or a time alone, which moves the watermark of the split.
type event struct {
	Value string
	At    int64  // ms
	Wait  string // for the mark of this name, which the pipeline leaves
}

// marks is a source of splits that wait for one another and for what the pipeline has made of them, whichever runner it
// is and however fast. A mark is a file in a directory of the run.
type marks struct {
	dir    string
	splits [][]event
}

// leave leaves a mark.
func leave(dir, mark string) error { return os.WriteFile(filepath.Join(dir, mark), nil, 0o666) }

// killedAt is where workers are killed, and the name of the mark that one leaves that was.
const killedAt = "before-prepare"

// killed is the file that is there once a worker has been killed, or "" in runs in which none is.
func killed() string {
	dir := os.Getenv("MILLSTREAM_FAILPOINTS_ONCE")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, killedAt)
}

// untilKill is a wait for that.
var untilKill = event{Wait: "a worker is killed"}

// untilKilled keeps the job from ending before.
func untilKilled(p *sdk.Pipeline) {
	sdk.Map("nothing", sdk.Read("until a worker is killed", p, marks{splits: [][]event{{untilKill}}}), func(event) int64 { return 0 })
}

// read adds a source of splits. Times of elements are those of the watermark.
func read(name string, p *sdk.Pipeline, dir string, s watermark.Strategy, splits ...[]event) (out pairs) {
	p.Scope(name, func() {
		events := sdk.Read("events", p, marks{dir, splits}, sdk.EventTime(func(e event) time.Time { return at(e.At) }, s))
		out = sdk.FlatMap("elements", events, func(e event, emit *sdk.Emitter[pair]) error {
			if e.Value != "" {
				emit.Emit(sdk.Pair("k", e.Value))
			}
			return nil
		})
	})
	return out
}

// place is how far a split has been read.
type place struct{ Split, Next int64 }

func (m marks) Splits(context.Context) (out []place, _ error) {
	for i := range m.splits {
		out = append(out, place{Split: int64(i)})
	}
	return out, nil
}

func (m marks) SplitID(p place) string { return strconv.FormatInt(p.Split, 10) }

func (m marks) Open(context.Context, connector.Subtask) (connector.Reader[event, place], error) {
	return &marksReader{marks: m}, nil
}

type marksReader struct {
	marks
	todo []place
	idle int // reads in a row that brought nothing
}

func (r *marksReader) Assign(splits []place) error {
	r.todo = append(r.todo, splits...)
	return nil
}

func (r *marksReader) Close() error { return nil }

// maxIdle reads, about 10 ms apart, are enough for all that a mark may wait for.
const maxIdle = 3000

// Read returns an event of the first split that need not wait.
func (r *marksReader) Read(context.Context, int) (b connector.Batch[event, place], err error) {
	for i := range r.todo {
		sp := &r.todo[i]
		events := r.splits[sp.Split]
		for sp.Next < int64(len(events)) && events[sp.Next].Wait != "" && r.left(events[sp.Next].Wait) {
			sp.Next++
		}
		done := sp.Next == int64(len(events))
		if !done && events[sp.Next].Wait != "" {
			continue
		}
		r.idle = 0
		if !done {
			b.Records = []event{events[sp.Next]}
			sp.Next++
		}
		b.Split, b.Done = *sp, done
		if done {
			r.todo = append(r.todo[:i:i], r.todo[i+1:]...)
		}
		return b, nil
	}
	if len(r.todo) == 0 {
		b.Status = connector.End
		return b, nil
	}
	if r.idle++; r.idle > maxIdle {
		sp := r.todo[0]
		return b, connector.Permanent(fmt.Errorf("waited in vain: %s", r.splits[sp.Split][sp.Next].Wait))
	}
	b.Status = connector.Idle
	return b, nil
}

// left says whether a mark is there.
func (r *marksReader) left(mark string) bool {
	file := filepath.Join(r.dir, mark)
	if mark == untilKill.Wait {
		if file = killed(); file == "" {
			return true
		}
	}
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
}
