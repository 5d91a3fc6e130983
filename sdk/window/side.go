package window

import "fmt"

// CheckSide tells why elements in windows of main cannot look into a side view in windows of side, or nil.
func CheckSide(side, main Fn) error {
	_, merges := Merging(side)
	switch {
	case merges || HasMerged(side):
		return fmt.Errorf("windows that merge, %s, are known key by key and not in a side view: window it into window.Global or window.Fixed first", Describe(side))
	case side != Fn(GlobalFn{}) && main == Fn(GlobalFn{}):
		return fmt.Errorf("the global window has no last instant that one of %s would hold: window the main input too, or the side view into window.Global", Describe(side))
	}
	return nil
}

// MapSide returns the window of side that elements in the window main look into: the first to end after the last instant of main
// (Beam). That holds it, unless it lies between sliding windows with a period above their size. An error is one of CheckSide, or of
// an Assigner, which may have no window.
func MapSide(side Fn, main Window) (Window, error) {
	if main == GlobalWindow {
		if err := CheckSide(side, GlobalFn{}); err != nil {
			return Window{}, err
		}
	}
	t := main.MaxTimestamp()
	switch f := side.(type) {
	case GlobalFn:
		return GlobalWindow, nil
	case FixedFn:
		return f.Assign(t), nil
	case CalendarFn:
		return f.Assign(t), nil
	case SlidingFn:
		if _, in := f.Slice(t); !in {
			t = f.next(t)
		}
		first, _ := f.Ends(t)
		return f.Ending(first), nil
	case CustomFn:
		if _, merges := f.Assigner.(Merger); merges {
			break
		}
		ws, err := f.Assign(nil, t)
		if err == nil && len(ws) == 0 {
			err = fmt.Errorf("custom windows %q have none for %v, the last instant of %v, so its elements have no side view", f.Name, t, main)
		}
		if err != nil {
			return Window{}, err
		}
		return ws[0], nil
	}
	return Window{}, CheckSide(side, FixedFn{})
}
