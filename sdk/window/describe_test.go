package window

import (
	"testing"
	"time"
)

func TestDescribeIsWhatTheProgramSays(t *testing.T) {
	for want, fn := range map[string]Fn{
		"window.Global()":                                           Global(),
		"window.Fixed(1h0m0s)":                                      Fixed(time.Hour),
		"window.Fixed(1h0m0s).Offset(15m0s)":                        Fixed(time.Hour).Offset(15 * time.Minute),
		"window.Sliding(1h0m0s, 1m0s)":                              Sliding(time.Hour, time.Minute),
		"window.Sliding(1h0m0s, 1m0s).Offset(1s)":                   Sliding(time.Hour, time.Minute).Offset(time.Second),
		"window.Sessions(1m0s)":                                     Sessions(time.Minute),
		"window.Sessions(1m0s) merged by an aggregation":            Merged(Sessions(time.Minute)),
		"windows of 1 day in Europe/Berlin":                         Days(1).In("Europe/Berlin"),
		`custom windows "mine"`:                                     Custom("mine", "", merger{}),
		`custom windows "mine" with "n=1" merged by an aggregation`: Merged(Custom("mine", "n=1", merger{})),
	} {
		if got := Describe(fn); got != want {
			t.Errorf("%+v is %s, want %s", fn, got, want)
		}
	}
}
