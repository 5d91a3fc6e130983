package window

import (
	"fmt"
	"hash/fnv"
	"strings"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
)

// CalendarFn is what Days, Weeks, Months and Years return. Two with the same String have the same windows, if the
// machines have the same time zone data.
type CalendarFn struct {
	Unit   CalendarUnit
	N      int    // units from the start of one window to that of the next
	Offset int    // of the first start that is not before 1970-01-01 (in January 1970, for months); in units, 0 to N-1
	Day    int    // of the month, for months, else 0; in a month that is shorter its last day
	Zone   string // of the IANA time zone database

	weekday bool // Weeks was given one, which From must keep
	loc     *time.Location
	err     error // of the first mistake in making it
}

// CalendarUnit is what a calendar window consists of: a week is seven days, and a year twelve months.
type CalendarUnit string

const (
	InDays   CalendarUnit = "days"
	InMonths CalendarUnit = "months"
)

// maxUnits bounds N, so that no sum wraps.
const maxUnits = 1_000_000

const day = 24 * 60 * 60 // seconds

// Days makes windows of n calendar days, from midnight to midnight in UTC unless In says else: a day on which clocks
// change has 23 or 25 hours. One window starts on 1970-01-01, unless From says else. n is 1 to 1,000,000.
func Days(n int) CalendarFn { return calendar(InDays, n, 1, 0) }

// Weeks makes windows of n weeks that start at midnight on a day of the week. One of them starts in the week of 1970-01-01 (from
// Monday 1969-12-29 to Sunday 1970-01-04), unless From says else.
func Weeks(n int, first time.Weekday) CalendarFn {
	f := calendar(InDays, n, 7, 0)
	if f.err == nil && (first < time.Sunday || first > time.Saturday) {
		f.err = fmt.Errorf("calendar windows that start on %v: give a day from time.Sunday to time.Saturday", first)
	}
	f.weekday = true
	return f.from(time.Date(1969, time.December, 29+int(first+6)%7, 0, 0, 0, 0, time.UTC))
}

// Months makes windows of n months that start at midnight on the first day of a month. One starts in January 1970. From
// changes both.
func Months(n int) CalendarFn { return calendar(InMonths, n, 1, 1) }

// Years makes windows of n years that start at midnight on the first of January. One starts in 1970. From changes both.
func Years(n int) CalendarFn { return calendar(InMonths, n, 12, 1) }

func calendar(unit CalendarUnit, n, units, dayOfMonth int) CalendarFn {
	f := CalendarFn{Unit: unit, N: 1, Day: dayOfMonth, Zone: "UTC", loc: time.UTC}
	if n < 1 || n > maxUnits/units {
		f.err = fmt.Errorf("calendar windows of %d %s: must be 1 to %d", n*units, unit, maxUnits)
		return f
	}
	f.N = n * units
	return f
}

// In lays the windows out in the time zone with this name of the IANA database, such as "Europe/Berlin". It is looked up when
// the pipeline is built: on the machine, or in the program if that imports time/tzdata, which adds 450 kB to
// it. "Local" is refused, for it is another zone on another machine.
func (f CalendarFn) In(zone string) CalendarFn {
	loc, err := time.LoadLocation(zone)
	switch {
	case zone == "" || zone == "Local":
		err = fmt.Errorf("calendar windows in the time zone %q: give the name of a zone that is the same on all machines, such as Europe/Berlin or UTC", zone)
	case err != nil:
		err = fmt.Errorf("calendar windows in the time zone %q: %w; give a name of the IANA database, such as Europe/Berlin, and if this machine has no such database, import _ \"time/tzdata\" in the program", zone, err)
	}
	if f.err == nil {
		f.err = err
	}
	f.Zone, f.loc = zone, loc
	return f
}

// From makes one of the windows start on this date, and the others before and after it. So
// Months(3).From(2014, time.January, 15) are quarters that change on the 15th. Windows of months that start on a day that some month
// lacks start on the last day of that month.
func (f CalendarFn) From(year int, month time.Month, dayOfMonth int) CalendarFn {
	date := time.Date(year, month, dayOfMonth, 0, 0, 0, 0, time.UTC)
	if y, m, d := date.Date(); f.err == nil && (y != year || m != month || d != dayOfMonth) {
		f.err = fmt.Errorf("calendar windows from %d-%02d-%02d: there is no such date", year, month, dayOfMonth)
	}
	if first := time.Unix(int64(f.Offset)*day, 0).UTC().Weekday(); f.err == nil && f.weekday && first != date.Weekday() {
		f.err = fmt.Errorf("weeks that start on %v cannot start on %s, a %v: give another date, or use window.Days(%d)", first, date.Format(time.DateOnly), date.Weekday(), f.N)
	}
	return f.from(date)
}

func (f CalendarFn) from(date time.Time) CalendarFn {
	units := floorDiv(date.Unix(), day)
	if f.Unit == InMonths {
		units = monthOf(date)
		f.Day = date.Day()
	}
	f.Offset = int(units - floorDiv(units, int64(f.N))*int64(f.N))
	return f
}

func (CalendarFn) windowFn() {}

func (f CalendarFn) validate() error {
	if f.err == nil && f.loc == nil {
		return fmt.Errorf("calendar windows %v: make them with window.Days, window.Weeks, window.Months or window.Years", f)
	}
	return f.err
}

// String is the identity of the windows. It is part of the state of an aggregation.
func (f CalendarFn) String() string {
	s := fmt.Sprintf("{Calendar:%d %s Offset:%d", f.N, f.Unit, f.Offset)
	if f.Unit == InMonths {
		s += fmt.Sprintf(" Day:%d", f.Day)
	}
	return s + " Zone:" + f.Zone + "}"
}

// Describe is the windows in words, such as "2 weeks from Monday 1970-01-05 in Europe/Berlin".
func (f CalendarFn) Describe() string {
	n, unit, from := f.N, string(f.Unit), ""
	switch start := time.Unix(int64(f.Offset)*day, 0).UTC(); {
	case f.Unit == InDays && n%7 == 0:
		n, unit, from = n/7, "weeks", start.Format(" from Monday 2006-01-02")
	case f.Unit == InDays && f.Offset > 0:
		from = start.Format(" from 2006-01-02")
	case f.Unit == InMonths && (f.Offset > 0 || f.Day > 1):
		from = fmt.Sprintf(" from %d-%02d, day %d", 1970+f.Offset/12, f.Offset%12+1, f.Day)
	}
	if f.Unit == InMonths && n%12 == 0 {
		n, unit = n/12, "years"
	}
	if n == 1 {
		unit = strings.TrimSuffix(unit, "s")
	}
	text := fmt.Sprintf("%d %s%s", n, unit, from)
	if f.Zone != "UTC" {
		text += " in " + f.Zone
	}
	return text
}

// Assign returns the one window that holds t. It starts and ends at the first instant at which the clocks of
// the zone have reached midnight: if they skip midnight the day begins when they do, and if they repeat it, the first time.
func (f CalendarFn) Assign(t eventtime.Time) Window {
	s := floorDiv(int64(t), 1000)
	_, offset := time.Unix(s, 0).In(f.loc).Zone()
	i := f.index(s + int64(offset))
	// Clocks that were set back over midnight show the day before for the second time.
	start, end := f.start(i), f.start(i+1)
	for end <= s {
		i++
		start, end = end, f.start(i+1)
	}
	return New(eventtime.Time(start*1000), eventtime.Time(end*1000)) // cannot wrap: maxUnits
}

// index is the number of the window that starts on or before the date that clocks show, in seconds as if in UTC.
func (f CalendarFn) index(local int64) int64 {
	units := floorDiv(local, day)
	if f.Unit == InMonths {
		date := time.Unix(local, 0).UTC()
		if units = monthOf(date); date.Day() < min(f.Day, daysIn(units)) {
			units--
		}
	}
	return floorDiv(units-int64(f.Offset), int64(f.N))
}

// start is the first second of window i, since the epoch.
func (f CalendarFn) start(i int64) int64 {
	units := i*int64(f.N) + int64(f.Offset)
	local := units * day
	if f.Unit == InMonths {
		year, month := yearAndMonth(units)
		local = time.Date(year, month, min(f.Day, daysIn(units)), 0, 0, 0, 0, time.UTC).Unix()
	}
	// No offset is two days. Between two changes of the offset, clocks and time go alike.
	for at := time.Unix(local-2*day, 0).In(f.loc); ; {
		_, offset := at.Zone()
		end := sameOffset(at)
		if s := max(local-int64(offset), at.Unix()); end.IsZero() || s < end.Unix() {
			return s
		}
		at = end
	}
}

// sameOffset returns a time up to which, from at on, the offset stays; the zero time means for ever. ZoneBounds says so, but not on
// the last day of leap years beyond the table of a zone, where its end lies before at. There it goes by minutes.
func sameOffset(at time.Time) time.Time {
	_, end := at.ZoneBounds()
	if !end.IsZero() && !end.After(at) {
		return at.Add(time.Minute)
	}
	return end
}

// monthOf counts months from January 1970.
func monthOf(date time.Time) int64 {
	year, month, _ := date.Date()
	return int64(year-1970)*12 + int64(month-1)
}

func yearAndMonth(months int64) (int, time.Month) {
	y := floorDiv(months, 12)
	return int(1970 + y), time.Month(months - 12*y + 1)
}

func daysIn(months int64) int {
	year, month := yearAndMonth(months)
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// Rules is a digest of what this machine knows of the zone, from 1900 to 2100. Machines that disagree would put an element
// into different windows, so a job compares it among its processes.
func (f CalendarFn) Rules() string {
	h := fnv.New64a()
	last := 0
	for at := time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC).In(f.loc); at.UTC().Year() < 2100; {
		if _, offset := at.Zone(); offset != last { // some bounds change the name alone
			fmt.Fprintln(h, at.Unix(), offset)
			last = offset
		}
		if at = sameOffset(at); at.IsZero() {
			break
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
