package mutants

var (
	windowValues = finder{"./sdk/window", "TestCalendar|TestCustom|TestWhat|TestSide|TestSessions", nil}
	userMerges   = finder{"./testing/twin", "TestMergingByUsers", nil}
)

const (
	calendarGo  = "sdk/window/calendar.go"
	customGo    = "sdk/window/custom.go"
	sideGo      = "sdk/window/side.go"
	panemergeGo = "internal/kernel/panemerge.go"
)

// Windows of calendars and of users (docs/design/windows.md).
func init() {
	mutants = append(mutants, []mutant{
		{"days before the epoch round towards it", calendarGo, "if a%b < 0 {", "if false {", windowValues},
		{"a day begins at the midnight of another offset", calendarGo,
			"max(local-int64(offset), at.Unix()); end.IsZero() || s < end.Unix()", "max(local-int64(offset), at.Unix()); true", windowValues},
		{"a while that clocks show twice belongs to the day before", calendarGo, "for end <= s {", "for false {", windowValues},
		{"a month that is too short has no window", calendarGo, "min(f.Day, daysIn(units)), 0", "f.Day, 0", windowValues},
		{"an element is in a window twice", customGo, "dst = slices.Compact(dst)", "_ = 0", windowValues},
		{"a window is merged twice", customGo, "w == taken[i-1] {", "w == taken[i-1] && false {", windowValues},
		{"a side window is the last of several", sideGo, "first, _ := f.Ends(t)", "_, first := f.Ends(t)", windowValues},
		{"a window that goes on alone is looked at", panemergeGo, "if s := &l.open[i]; !same && ", "if s := &l.open[i]; ", twins},
		{"an element stays in its own window when that has merged", panemergeGo, "home = g.Into", "home = w", userMerges},
		{"a window that is closed merges", panemergeGo, "return open && l.open[at].closed", "return open && l.open[at].closed && false", userMerges},
		{"a hold stays beyond the end of what windows merge into", panemergeGo, "s.more.hold = min(s.more.hold, end)", "_ = 0", userMerges},
		{"what ends behind the watermark of the output holds it", panemergeGo, "case end < o.out:", "case false:", userMerges},
	}...)
}
