package runners

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/runners/direct"
)

func TestProgressHasRateWatermarkAndCheckpointAge(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	r.terminal = true
	r.progress(direct.Progress{RecordsRead: 1234567, Watermark: 978307200000, Checkpoints: 3, CheckpointAge: 4 * time.Second})
	want := regexp.MustCompile(`^\r\S+  read 1,234,567 records, .*/s, watermark 2001-01-01T00:00:00\S*, 3 checkpoints, last 4s ago$`)
	if !want.MatchString(out.String()) {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	r.clear()
	if line := out.String(); strings.Trim(line, " \r") != "" || len(line) < 60 {
		t.Errorf("the line is cleared by %q", line)
	}
}

// An attempt counts from nothing: the one before it read more, and the rate is of this one alone.
func TestFiguresAfterARestartAreOfTheAttempt(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	r.terminal = true
	r.began(1, 0)
	r.progress(direct.Progress{RecordsRead: 9_000_000})
	if strings.Contains(out.String(), "since") {
		t.Errorf("nothing was restored: %q", out.String())
	}
	out.Reset()
	r.progress(direct.Progress{RecordsRead: 8_000_000}) // a worker is gone, with its figures
	r.began(2, 7)
	r.progress(direct.Progress{RecordsRead: 1000})
	if line := out.String(); strings.Contains(line, ", -") || !strings.Contains(line, "read 1,000 records") || !strings.Contains(line, "since checkpoint 7 was restored") {
		t.Errorf("%q", line)
	}
	if r.lastRead != 1000 {
		t.Errorf("the next rate counts from %d", r.lastRead)
	}
	for _, c := range []struct {
		attempt, restored int64
		want              string
	}{{2, 7, "the figures count since checkpoint 7 was restored"}, {2, 0, "the figures count since the job began again"}, {1, 3, "since checkpoint 3"}} {
		out.Reset()
		r.began(c.attempt, c.restored)
		r.table(nil)
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("attempt %d from %d: %q", c.attempt, c.restored, out.String())
		}
	}
	out.Reset()
	r.began(1, 0)
	r.table(nil)
	if strings.Contains(out.String(), "since") {
		t.Errorf("nothing was restored: %q", out.String())
	}
}

func TestTableSaysWhereLateElementsWent(t *testing.T) {
	kept, dropped := direct.Step{Name: "kept", LateDropped: 1, LateTo: true}, direct.Step{Name: "dropped", LateDropped: 1}
	for _, c := range []struct {
		steps         []direct.Step
		kept, dropped bool
	}{{[]direct.Step{kept}, true, false}, {[]direct.Step{dropped}, false, true}, {[]direct.Step{kept, dropped}, true, true}} {
		var out strings.Builder
		newReport(&out).table(c.steps)
		if strings.Contains(out.String(), `elements of "dropped" came`) != c.dropped || strings.Contains(out.String(), `elements of "kept" went to the late output`) != c.kept {
			t.Errorf("%+v:\n%s", c.steps, out.String())
		}
	}
}

func TestTableHasLateElementsAndWhatToDo(t *testing.T) {
	steps := []direct.Step{{Name: "read", RecordsOut: 1000}, {Name: "count", RecordsIn: 1000, RecordsOut: 10, LateDropped: 7}}
	var out strings.Builder
	newReport(&out).table(steps)
	for _, want := range []string{`(?m)^ *step +in +out +late$`, `(?m)^ *count +1,000 +10 +7$`, `sdk\.LateTo`} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in:\n%s", want, out.String())
		}
	}
	out.Reset()
	newReport(&out).table(steps[:1])
	if strings.Contains(out.String(), "LateTo") {
		t.Errorf("nothing was late, and it says:\n%s", out.String())
	}
}

func TestTableTellsWhatStepsCount(t *testing.T) {
	var out strings.Builder
	newReport(&out).table([]direct.Step{{Name: "sort", RecordsIn: 7, Figures: direct.Figures{
		Counters:      map[string]int64{"zeros": 1, "ones": 2000},
		Distributions: map[string]direct.Summary{"sizes": {Count: 2, Sum: 30, Min: 10, Max: 20}, "none": {}},
		Gauges:        map[string]direct.Reading{"depth": {Value: 3, At: 1500}},
		Histograms:    map[string]direct.Buckets{"ms": {Summary: direct.Summary{Count: 2, Sum: 3, Min: 1, Max: 2}, N: []int64{0, 0, 1, 1}}, "empty": {}},
	}}})
	want := regexp.MustCompile(`(?s) ones .* 2,000 .* zeros .* 1 .*
sort: sizes count 2, sum 30, min 10, max 20
sort: depth 3 at 1970-01-01T00:00:01.5\S*
sort: ms count 2, min 1, p50 1, p90 2, p99 2, max 2
done`)
	if !want.MatchString(out.String()) {
		t.Errorf("%s", out.String())
	}
	if strings.Contains(out.String(), "none") || strings.Contains(out.String(), "empty") {
		t.Errorf("the table has what was never observed:\n%s", out.String())
	}
}
