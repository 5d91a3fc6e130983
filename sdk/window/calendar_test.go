package window

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millstream/millstream/internal/eventtime"
)

// local is the window of a time, as clocks of the zone show it.
func local(t *testing.T, f CalendarFn, at string) string {
	t.Helper()
	if err := Validate(f); err != nil {
		t.Fatal(err)
	}
	instant, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		t.Fatal(err)
	}
	w := f.Assign(eventtime.FromTime(instant))
	show := func(t time.Time) string { return t.In(f.loc).Format("2006-01-02T15:04:05Z07:00") }
	return fmt.Sprintf("%s %s %v", show(w.Start()), show(w.End()), w.End().Sub(w.Start()))
}

func TestCalendarWindows(t *testing.T) {
	for _, c := range []struct {
		name string
		fn   CalendarFn
		at   string
		want string
	}{
		{"a day", Days(1), "2026-03-01T10:00:00Z", "2026-03-01T00:00:00Z 2026-03-02T00:00:00Z 24h0m0s"},
		{"its first instant", Days(1), "2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z 2026-03-02T00:00:00Z 24h0m0s"},
		{"its last", Days(1), "2026-02-28T23:59:59.999Z", "2026-02-28T00:00:00Z 2026-03-01T00:00:00Z 24h0m0s"},
		{"a day before the epoch", Days(1), "1969-12-31T23:59:59.999Z", "1969-12-31T00:00:00Z 1970-01-01T00:00:00Z 24h0m0s"},
		{"days before the epoch, which Beam rounds the other way", Days(3), "1969-12-31T10:00:00Z", "1969-12-29T00:00:00Z 1970-01-01T00:00:00Z 72h0m0s"},
		{"days from a date", Days(10).From(2026, time.March, 5), "2026-03-01T10:00:00Z", "2026-02-23T00:00:00Z 2026-03-05T00:00:00Z 240h0m0s"},
		{"a day of another zone", Days(1).In("Asia/Tokyo"), "2026-03-01T15:00:00Z", "2026-03-02T00:00:00+09:00 2026-03-03T00:00:00+09:00 24h0m0s"},
		{"a day of 23 hours", Days(1).In("Europe/Berlin"), "2026-03-29T12:00:00Z", "2026-03-29T00:00:00+01:00 2026-03-30T00:00:00+02:00 23h0m0s"},
		{"a day of 25 hours", Days(1).In("Europe/Berlin"), "2026-10-25T00:30:00Z", "2026-10-25T00:00:00+02:00 2026-10-26T00:00:00+01:00 25h0m0s"},
		{"the hour that comes twice, again", Days(1).In("Europe/Berlin"), "2026-10-25T01:30:00Z", "2026-10-25T00:00:00+02:00 2026-10-26T00:00:00+01:00 25h0m0s"},
		{"a day without midnight", Days(1).In("America/Sao_Paulo"), "2018-11-04T12:00:00Z", "2018-11-04T01:00:00-02:00 2018-11-05T00:00:00-02:00 23h0m0s"},
		{"the day before it", Days(1).In("America/Sao_Paulo"), "2018-11-04T02:59:59Z", "2018-11-03T00:00:00-03:00 2018-11-04T01:00:00-02:00 24h0m0s"},
		{"a day with two midnights", Days(1).In("America/Havana"), "2026-11-01T04:30:00Z", "2026-11-01T00:00:00-04:00 2026-11-02T00:00:00-05:00 25h0m0s"},
		{"clocks set back to the day before", Days(1).In("America/St_Johns"), "2005-10-30T02:45:00Z", "2005-10-30T00:00:00-02:30 2005-10-31T00:00:00-03:30 25h0m0s"},
		{"a day that a zone left out", Days(1).In("Pacific/Apia"), "2011-12-30T10:00:00Z", "2011-12-31T00:00:00+14:00 2012-01-01T00:00:00+14:00 24h0m0s"},
		{"a leap year's end beyond the table of the zone", Days(1).In("America/New_York"), "2040-12-31T12:00:00Z", "2040-12-31T00:00:00-05:00 2041-01-01T00:00:00-05:00 24h0m0s"},
		{"a week", Weeks(1, time.Monday), "2026-03-01T10:00:00Z", "2026-02-23T00:00:00Z 2026-03-02T00:00:00Z 168h0m0s"},
		{"a week from Sunday", Weeks(1, time.Sunday), "2026-03-01T10:00:00Z", "2026-03-01T00:00:00Z 2026-03-08T00:00:00Z 168h0m0s"},
		{"two weeks are counted from the week of the epoch", Weeks(2, time.Monday), "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z 1970-01-12T00:00:00Z 336h0m0s"},
		{"also if they start on a day after it", Weeks(2, time.Sunday), "1970-01-05T00:00:00Z", "1970-01-04T00:00:00Z 1970-01-18T00:00:00Z 336h0m0s"},
		{"or where one says", Weeks(2, time.Monday).From(2026, time.March, 2), "2026-03-01T10:00:00Z", "2026-02-16T00:00:00Z 2026-03-02T00:00:00Z 336h0m0s"},
		{"a month", Months(1).In("Europe/Berlin"), "2026-03-31T22:00:00Z", "2026-04-01T00:00:00+02:00 2026-05-01T00:00:00+02:00 720h0m0s"},
		{"a month with a change of clocks", Months(1).In("Europe/Berlin"), "2026-03-31T21:59:59Z", "2026-03-01T00:00:00+01:00 2026-04-01T00:00:00+02:00 743h0m0s"},
		{"a month from the 15th", Months(1).From(2020, time.May, 15), "2026-03-01T10:00:00Z", "2026-02-15T00:00:00Z 2026-03-15T00:00:00Z 672h0m0s"},
		{"a month from the 31st", Months(1).From(2020, time.January, 31), "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z 2026-03-31T00:00:00Z 744h0m0s"},
		{"the month before that", Months(1).From(2020, time.January, 31), "2026-02-27T00:00:00Z", "2026-01-31T00:00:00Z 2026-02-28T00:00:00Z 672h0m0s"},
		{"quarters on the 15th", Months(3).From(2014, time.January, 15), "2026-01-14T10:00:00Z", "2025-10-15T00:00:00Z 2026-01-15T00:00:00Z 2208h0m0s"},
		{"months before the epoch", Months(5).From(2014, time.January, 15), "1969-07-01T00:00:00Z", "1969-06-15T00:00:00Z 1969-11-15T00:00:00Z 3672h0m0s"},
		{"a year", Years(1), "2024-07-01T00:00:00Z", "2024-01-01T00:00:00Z 2025-01-01T00:00:00Z 8784h0m0s"},
		{"a tax year", Years(1).In("Europe/London").From(1990, time.April, 6), "2026-04-05T12:00:00Z", "2025-04-06T00:00:00+01:00 2026-04-06T00:00:00+01:00 8760h0m0s"},
		{"a year from a leap day", Years(1).From(2024, time.February, 29), "2026-02-28T12:00:00Z", "2026-02-28T00:00:00Z 2027-02-28T00:00:00Z 8760h0m0s"},
		{"decades", Years(10).From(2001, time.January, 1), "1969-01-01T00:00:00Z", "1961-01-01T00:00:00Z 1971-01-01T00:00:00Z 87648h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := local(t, c.fn, c.at); got != c.want {
				t.Errorf("%s is in\n%s, want\n%s", c.at, got, c.want)
			}
		})
	}
}

var zones = []string{
	"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "America/Havana", "America/St_Johns", "Pacific/Apia", "Pacific/Kwajalein",
	"Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu", "Asia/Manila", "Antarctica/Troll", "Europe/Dublin", "Africa/Monrovia",
}

func drawCalendar(r *rapid.T) CalendarFn {
	n := rapid.IntRange(1, 40).Draw(r, "n")
	var f CalendarFn
	switch rapid.IntRange(0, 3).Draw(r, "unit") {
	case 0:
		f = Days(n)
	case 1:
		f = Weeks(n, time.Weekday(rapid.IntRange(0, 6).Draw(r, "weekday")))
	case 2:
		f = Months(n)
	case 3:
		f = Years(n)
	}
	f = f.In(rapid.SampledFrom(zones).Draw(r, "zone"))
	if rapid.Bool().Draw(r, "from") && !f.weekday {
		y, m, d := time.Date(rapid.IntRange(1800, 2200).Draw(r, "year"), 1, rapid.IntRange(1, 366).Draw(r, "day"), 0, 0, 0, 0, time.UTC).Date()
		f = f.From(y, m, d)
	}
	return f
}

// TestCalendarWindowsArePartitions: each time is in its window, all times of the window have it, the next begins where it
// ends, and a window starts when clocks first show the midnight of its date.
func TestCalendarWindowsArePartitions(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		f := drawCalendar(r)
		if err := Validate(f); err != nil {
			r.Fatal(err)
		}
		at := rapid.OneOf(
			rapid.Int64Range(-6e12, 5e12), // 1779 to 2128
			rapid.Int64Range(int64(eventtime.Min), int64(eventtime.Max)-1),
			rapid.SampledFrom([]int64{int64(eventtime.Min), int64(eventtime.Max) - 1, -1, 0}),
		).Draw(r, "t")
		w := f.Assign(eventtime.Time(at))
		start, end := w.StartTime(), w.EndTime()
		if start > eventtime.Time(at) || eventtime.Time(at) >= end {
			r.Fatalf("%v: %d is not in %d..%d", f, at, start, end)
		}
		for _, in := range []eventtime.Time{start, end - 1, start + (end-start)/2, start + eventtime.Time(rapid.Int64Range(0, int64(end-start)-1).Draw(r, "in"))} {
			if got := f.Assign(in); got != w {
				r.Fatalf("%v: %d is in %v, and %d, which lies in it, in %v", f, at, w, in, got)
			}
		}
		if end < eventtime.Max {
			if next := f.Assign(end); next.StartTime() != end {
				r.Fatalf("%v: %v comes after %v", f, next, w)
			}
		}
		if start == eventtime.Min {
			return
		}
		if before := f.Assign(start - 1); before.EndTime() != start {
			r.Fatalf("%v: %v comes before %v", f, before, w)
		}
		first := start.Time().In(f.loc)
		if _, earlier := start.Time().Add(-time.Second).In(f.loc).Zone(); first.Format("15:04:05") != "00:00:00" {
			_, now := first.Zone()
			if now <= earlier {
				r.Fatalf("%v: %v does not start at midnight, and clocks were not set forward", f, first)
			}
		}
		if f.Unit == InMonths && first.Format("15:04:05") == "00:00:00" {
			last := time.Date(first.Year(), first.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
			if first.Day() != min(f.Day, last) {
				r.Fatalf("%v starts on %v", f, first)
			}
		}
	})
}

// TestCalendarWindowsWithoutAZoneAreFixed: what Fixed can express, it does alike.
func TestCalendarWindowsWithoutAZoneAreFixed(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		n, shift := rapid.IntRange(1, 400).Draw(r, "n"), rapid.IntRange(-1000, 1000).Draw(r, "shift")
		y, m, d := time.Date(1970, 1, 1+shift, 0, 0, 0, 0, time.UTC).Date()
		at := eventtime.Time(rapid.Int64Range(int64(eventtime.Min), int64(eventtime.Max)-1).Draw(r, "t"))
		got, want := Days(n).From(y, m, d).Assign(at), Fixed(time.Duration(n)*24*time.Hour).Offset(time.Duration(shift)*24*time.Hour).Assign(at)
		if got != want {
			r.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestCalendarWindowsAreKnownByTheirText(t *testing.T) {
	for _, c := range []struct {
		fn             CalendarFn
		text, describe string
	}{
		{Days(1), "{Calendar:1 days Offset:0 Zone:UTC}", "1 day"},
		{Days(1).From(2026, time.March, 5), "{Calendar:1 days Offset:0 Zone:UTC}", "1 day"},
		{Days(3).From(1969, time.December, 31).In("Europe/Berlin"), "{Calendar:3 days Offset:2 Zone:Europe/Berlin}", "3 days from 1970-01-03 in Europe/Berlin"},
		{Weeks(1, time.Monday), "{Calendar:7 days Offset:4 Zone:UTC}", "1 week from Monday 1970-01-05"},
		{Weeks(1, time.Monday).From(2026, time.March, 2), "{Calendar:7 days Offset:4 Zone:UTC}", "1 week from Monday 1970-01-05"},
		{Days(7).From(2026, time.March, 2), "{Calendar:7 days Offset:4 Zone:UTC}", "1 week from Monday 1970-01-05"},
		{Months(3).From(2014, time.February, 15), "{Calendar:3 months Offset:1 Day:15 Zone:UTC}", "3 months from 1970-02, day 15"},
		{Months(12), "{Calendar:12 months Offset:0 Day:1 Zone:UTC}", "1 year"},
		{Years(2).From(2001, time.April, 6), "{Calendar:24 months Offset:15 Day:6 Zone:UTC}", "2 years from 1971-04, day 6"},
	} {
		if got := fmt.Sprintf("%+v", c.fn); got != c.text {
			t.Errorf("%s, want %s", got, c.text)
		}
		if got := c.fn.Describe(); got != c.describe {
			t.Errorf("%s: %q, want %q", c.text, got, c.describe)
		}
	}
}

func TestCalendarMistakesAreNamed(t *testing.T) {
	for _, c := range []struct {
		fn   CalendarFn
		want string
	}{
		{Days(0), "0 days: must be 1 to 1000000"},
		{Years(-1), "-12 months"},
		{Years(100_000), "1200000 months"},
		{Days(1).In("Mars/Phobos"), `time zone "Mars/Phobos": unknown time zone Mars/Phobos; give a name of the IANA database, such as Europe/Berlin, and if this machine has no such database, import _ "time/tzdata"`},
		{Days(1).In("Local"), `time zone "Local"`},
		{Days(1).In("").In("UTC"), `time zone ""`},
		{Months(1).From(2026, time.February, 30), "2026-02-30: there is no such date"},
		{Weeks(1, time.Monday).From(2026, time.March, 1), "weeks that start on Monday cannot start on 2026-03-01, a Sunday"},
		{Weeks(1, 7), "give a day from time.Sunday to time.Saturday"},
		{CalendarFn{Unit: InDays, N: 1}, "make them with window.Days"},
	} {
		if err := Validate(c.fn); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.fn, err, c.want)
		}
	}
}

func TestRulesTellZonesApart(t *testing.T) {
	seen := map[string]string{}
	for _, zone := range zones {
		rules := Days(1).In(zone).Rules()
		if other, ok := seen[rules]; ok {
			t.Errorf("%s has the rules of %s", zone, other)
		}
		if seen[rules] = zone; rules != Months(2).In(zone).Rules() {
			t.Errorf("%s has other rules the second time", zone)
		}
	}
}

func BenchmarkCalendarAssign(b *testing.B) {
	f := Days(1).In("Europe/Berlin")
	for i := range b.N {
		f.Assign(eventtime.Time(int64(i) * 1000_000))
	}
}
