// Package trigger says when the panes of a window fire.
package trigger

import "fmt"

// Trigger is a closed set of values, made by this package and interpreted by the runner.
type Trigger interface{ trigger() }

// Watermark is what AfterWatermark returns.
type Watermark struct{ EarlyCount, LateCount int64 }

// AfterWatermark fires once, when the watermark passes the end of the window, and, if the window takes
// late elements, for each of them: it is the trigger of every collection unless another is given.
func AfterWatermark() Watermark { return Watermark{LateCount: 1} }

// Early adds repeated firings before the end of the window.
func (w Watermark) Early(c Count) Watermark { w.EarlyCount = c.N; return w }

// Late replaces the repeated firings after the end of the window.
func (w Watermark) Late(c Count) Watermark { w.LateCount = c.N; return w }

func (Watermark) trigger() {}

// Count is what AfterCount returns.
type Count struct{ N int64 }

// AfterCount is due once n elements have come since the last firing. n is at least 1.
func AfterCount(n int) Count { return Count{int64(n)} }

// Validate tells what is wrong with t, or nil.
func Validate(t Trigger) error {
	w, ok := t.(Watermark)
	if !ok {
		return fmt.Errorf("no trigger given: use trigger.AfterWatermark")
	}
	if w.EarlyCount < 0 || w.LateCount < 1 {
		return fmt.Errorf("trigger.AfterCount needs a count of at least 1")
	}
	return nil
}
