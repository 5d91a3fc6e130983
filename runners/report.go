package runners

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/runners/direct"
)

// report tells a person how a job goes: a line that changes on a terminal, a line now and then elsewhere,
// and a table at the end.
type report struct {
	w        io.Writer
	terminal bool
	started  time.Time
	last     time.Time
	lastRead int64 // by the attempt
	attempt  int64
	since    string // from where the figures count, if not from the beginning of the job
	width    int
}

func newReport(w io.Writer) *report {
	r := &report{w: w, started: time.Now(), last: time.Now()}
	if f, ok := w.(*os.File); ok {
		r.terminal = term.IsTerminal(int(f.Fd()))
	}
	return r
}

// began says of which attempt the figures are that follow, and from which checkpoint it began (0: none).
func (r *report) began(attempt, restored int64) {
	if attempt != r.attempt {
		r.attempt, r.lastRead = attempt, 0
	}
	switch {
	case restored > 0:
		r.since = fmt.Sprintf("since checkpoint %d was restored", restored)
	case attempt > 1:
		r.since = "since the job began again, without a checkpoint"
	default:
		r.since = ""
	}
}

// progress is called about once a second.
func (r *report) progress(p direct.Progress) {
	now := time.Now()
	if !r.terminal && now.Sub(r.last) < progressEvery {
		return
	}
	rate := float64(max(0, p.RecordsRead-r.lastRead)) / now.Sub(r.last).Seconds()
	r.last, r.lastRead = now, p.RecordsRead
	line := fmt.Sprintf("%s  read %s records, %s/s, watermark %s", now.Sub(r.started).Round(time.Second),
		humanize.Comma(p.RecordsRead), humanize.SIWithDigits(rate, 1, ""), eventtime.Time(p.Watermark))
	if r.since != "" {
		line += ", " + r.since
	}
	if p.Checkpoints > 0 {
		line += fmt.Sprintf(", %d checkpoints, last %s ago", p.Checkpoints, p.CheckpointAge.Round(time.Second))
	}
	if !r.terminal {
		fmt.Fprintln(r.w, line)
		return
	}
	fmt.Fprintf(r.w, "\r%s%s", line, strings.Repeat(" ", max(0, r.width-len(line))))
	r.width = len(line)
}

// clear takes the changing line away.
func (r *report) clear() {
	if r.width > 0 {
		fmt.Fprintf(r.w, "\r%s\r", strings.Repeat(" ", r.width))
	}
}

// table prints the figures of each step.
func (r *report) table(steps []direct.Step) {
	t := tabwriter.NewWriter(r.w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "step\tin\tout\tlate\t")
	var dropped, kept []string
	for _, s := range steps {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", s.Name, humanize.Comma(s.RecordsIn), humanize.Comma(s.RecordsOut), humanize.Comma(s.LateDropped))
		switch {
		case s.LateDropped > 0 && s.LateTo:
			kept = append(kept, strconv.Quote(s.Name))
		case s.LateDropped > 0:
			dropped = append(dropped, strconv.Quote(s.Name))
		}
		for _, name := range slices.Sorted(maps.Keys(s.Counters)) {
			fmt.Fprintf(t, "  %s\t\t%s\t\t\n", name, humanize.Comma(s.Counters[name]))
		}
	}
	t.Flush()
	for _, s := range steps {
		for _, line := range figureLines(s.Figures) {
			fmt.Fprintf(r.w, "%s: %s\n", s.Name, line)
		}
	}
	if len(dropped) > 0 {
		fmt.Fprintf(r.w, "late elements of %s came after their window had expired and were dropped: allow more disorder (watermark.Bounded), more lateness (sdk.AllowedLateness), or collect them (sdk.LateTo)\n", strings.Join(dropped, ", "))
	}
	if len(kept) > 0 {
		fmt.Fprintf(r.w, "late elements of %s went to the late output\n", strings.Join(kept, ", "))
	}
	if r.since != "" {
		fmt.Fprintf(r.w, "the figures count %s; the output is that of the whole job\n", r.since)
	}
	fmt.Fprintf(r.w, "done in %s\n", time.Since(r.started).Round(time.Millisecond))
}

// figureLines tells of the figures that are more than a number, in the order of their names.
func figureLines(f direct.Figures) (lines []string) {
	line := func(name, format string, args ...any) {
		lines = append(lines, name+" "+fmt.Sprintf(format, args...))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Distributions)) {
		if d := f.Distributions[name]; d.Count > 0 {
			line(name, "count %s, sum %s, min %s, max %s", humanize.Comma(d.Count), humanize.Comma(d.Sum), humanize.Comma(d.Min), humanize.Comma(d.Max))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Gauges)) {
		g := f.Gauges[name]
		line(name, "%s at %s", humanize.Comma(g.Value), g.At)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Histograms)) {
		if h := f.Histograms[name]; h.Count > 0 {
			line(name, "count %s, min %s, p50 %s, p90 %s, p99 %s, max %s", humanize.Comma(h.Count), humanize.Comma(h.Min),
				humanize.Comma(h.Quantile(0.5)), humanize.Comma(h.Quantile(0.9)), humanize.Comma(h.Quantile(0.99)), humanize.Comma(h.Max))
		}
	}
	return lines
}
