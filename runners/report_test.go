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
