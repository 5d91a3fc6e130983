package trigger

// FiresEarly says whether t may be ready before the end of the window. In the global window of a stream that never ends nothing
// else counts.
func FiresEarly(t Trigger) bool {
	any := func(ts []Trigger) bool {
		for _, t := range ts {
			if FiresEarly(t) {
				return true
			}
		}
		return false
	}
	switch t := t.(type) {
	case Watermark:
		return t.EarlyPart != nil && FiresEarly(t.EarlyPart)
	case Count, ProcessingTime, AlwaysFires:
		return true
	case First:
		return any(t.Of)
	case All:
		for _, t := range t.Of {
			if !FiresEarly(t) {
				return false
			}
		}
		return true
	case Each:
		return FiresEarly(t.Of[0])
	case Finally:
		return any([]Trigger{t.Main, t.Until})
	case Repeat:
		return FiresEarly(t.Of)
	}
	return false
}
