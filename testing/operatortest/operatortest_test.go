package operatortest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// counter says how many elements it has seen: with each batch, and twice once the watermark is at 5.
type counter struct {
	out     kernel.Output
	n, left int

	forgets bool // its state
	hurries bool // it fires only while the budget lasts, and calls that done
}

func (c *counter) Open(o *kernel.OpenContext) error {
	c.out = o.Outputs[0]
	if o.Restore != nil && !c.forgets {
		_, err := fmt.Sscan(string(o.Restore.Blob), &c.n, &c.left)
		return err
	}
	return nil
}

func (c *counter) Process(_ int, b kernel.Batch) error {
	c.n += b.Len()
	c.left = 2
	return c.say()
}

func (c *counter) Watermark(w eventtime.Time, budget int) (bool, error) {
	for ; w >= 5 && c.left > 0; c.left-- {
		if budget--; budget < 0 {
			return c.hurries, nil
		}
		if err := c.say(); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (c *counter) say() error {
	return c.out.Emit(&kernel.Rows[int]{E: []kernel.Element[int]{{Value: c.n}}})
}

func (c *counter) Snapshot(int64, bool) (kernel.OpSnapshot, error) {
	return kernel.OpSnapshot{Blob: fmt.Append(nil, c.n, " ", c.left)}, nil
}

func (c *counter) Close() error { return nil }

func TestBrokenOperatorsAreSeen(t *testing.T) {
	e := kernel.Element[int]{Value: 1}
	for name, broken := range map[string]counter{"": {}, "forgets": {forgets: true}, "hurries": {hurries: true}} {
		said, err := Check(Case{
			New:    func() kernel.Operator { c := broken; return &c },
			Ports:  []Print{Lines(func(e kernel.Element[int]) string { return fmt.Sprint(e.Value) })},
			Inputs: []Input{Batch(0, e), Batch(0, e, e), Watermark(5)},
		})
		if name == "" {
			if got := fmt.Sprint(said); err != nil || got != "[[1] [3] [3 3]]" {
				t.Errorf("the sound operator said %s, %v", got, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "differs from an undisturbed run") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
