package twin

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
)

// transcripts is Beam's file of cases for triggers, unchanged (sdks/python/apache_beam/testing/data). Beam counts in whole units
// of its clock and names the last instant of a window; a unit is a millisecond here.
//
//go:embed testdata/trigger_transcripts.yaml
var transcripts []byte

// transcript is one case. What it leaves out is the global window, the default trigger, ACCUMULATING and OUTPUT_AT_EOW.
type transcript struct {
	Name              string
	Error             string   // what must go wrong
	BrokenOn          []string `yaml:"broken_on"` // runners of Beam's; not an excuse here
	WindowFn          string   `yaml:"window_fn"`
	Slip              string   `yaml:"windowfn"` // which Beam does not read, so that the case has the global window
	TriggerFn         string   `yaml:"trigger_fn"`
	TimestampCombiner string   `yaml:"timestamp_combiner"`
	AccumulationMode  string   `yaml:"accumulation_mode"`
	AllowedLateness   int64    `yaml:"allowed_lateness"`
	Transcript        []transcriptStep
}

// transcriptStep has one field set.
type transcriptStep struct {
	Input     []int64
	Watermark *int64
	Clock     *int64
	Expect    []expected
	State     *struct{ Present, Absent, Tombstone [][2]int64 }
}

// expected is a pane; what is nil may be anything.
type expected struct {
	Window         *[2]int64
	Values         *[]int64
	Timestamp      *int64
	Index          *int64
	Nonspeculative *int64 `yaml:"nonspeculative_index"`
	Early          *bool
	Late           *bool
	Final          *bool
}

const present, tombstone, absent = "present", "tombstone", "absent"

// unexpected is what Beam's file says of output that no step expects.
const unexpected = "Unexpected output"

// Stater is a System that tells what it keeps for a key and window: "present" if it takes elements and has some, "tombstone" if
// its trigger is finished and it has not expired, else "absent".
type Stater interface {
	State(key string, w window.Window) string
}

// State implements Stater.
func (t *Twin) State(key string, w window.Window) string {
	for _, l := range t.windows[key] {
		switch {
		case l.win != w:
		case t.root(l).done:
			return tombstone
		default:
			return present
		}
	}
	return absent
}

// Transcripts runs Beam's transcripts on systems that open makes. All must hold, and those that are wrong must be found to be.
// open may refuse a strategy with OutputTime by an error that is errors.ErrUnsupported.
func Transcripts(t *testing.T, open func(Strategy) (System, error)) {
	// One line lacks a space that Python's parser does not need.
	d := yaml.NewDecoder(bytes.NewReader(bytes.ReplaceAll(transcripts, []byte("values:["), []byte("values: ["))))
	d.KnownFields(true)
	for n := 0; ; n++ {
		var c transcript
		if err := d.Decode(&c); errors.Is(err, io.EOF) {
			if n == 0 {
				t.Fatal("there are no transcripts")
			}
			return
		} else if err != nil {
			t.Fatalf("transcript %d: %v", n+1, err)
		}
		t.Run(c.Name, func(t *testing.T) {
			s, err := c.strategy()
			if err != nil {
				t.Fatal(err)
			}
			for _, backwards := range c.orders() {
				system, err := open(s)
				if s.OutputTime != nil && errors.Is(err, errors.ErrUnsupported) {
					t.Logf("refused, as it may be: %v", err)
					return
				}
				if err == nil {
					err = c.run(system, backwards)
				}
				if c.Error == "" && err != nil {
					t.Errorf("elements backwards: %v: %v", backwards, err)
				}
				if c.Error != "" && (err == nil || !strings.Contains(err.Error(), c.Error)) {
					t.Errorf("must fail with %q, but the error is %v", c.Error, err)
				}
			}
		})
	}
}

// orders are those in which the elements of one input may come: as they are given, and backwards if that makes no difference.
func (c transcript) orders() []bool {
	if c.TriggerFn == "Default" && !strings.EqualFold(c.AccumulationMode, "discarding") {
		return []bool{false, true}
	}
	return []bool{false}
}

const transcriptKey = "key"

// run is nil if system does what the transcript expects, in which every pane must be.
func (c transcript) run(system System, backwards bool) error {
	var out []Pane
	do := func(e Event) error {
		step, err := system.Do(e)
		out = append(out, step.Panes...)
		return err
	}
	var latest int64
	for i, step := range c.Transcript {
		if step.Expect == nil && len(out) > 0 {
			return fmt.Errorf("%s before step %d: %v", unexpected, i+1, out)
		}
		var err error
		switch {
		case step.Input != nil:
			in := slices.Clone(step.Input)
			if backwards {
				slices.Reverse(in)
			}
			for _, v := range in {
				latest = max(latest, v)
				err = errors.Join(err, do(Element(transcriptKey, v, eventtime.Time(v))))
			}
		case step.Watermark != nil:
			err = do(Watermark(eventtime.Time(*step.Watermark)))
		case step.Clock != nil:
			err = do(Clock(eventtime.Time(*step.Clock)))
		case step.Expect != nil:
			for _, x := range step.Expect {
				at := slices.IndexFunc(out, x.is)
				if at < 0 {
					return fmt.Errorf("step %d: Unmatched output: %v is not in %v", i+1, x, out)
				}
				out = slices.Delete(out, at, at+1)
			}
		case step.State != nil:
			// No runner of Beam's looks. What it says is so once the watermark is where the elements are.
			if err = do(Watermark(eventtime.Time(latest))); err == nil {
				err = checkState(system, present, step.State.Present)
			}
			err = errors.Join(err, checkState(system, tombstone, step.State.Tombstone), checkState(system, absent, step.State.Absent))
		default:
			err = errors.New("says nothing")
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	if len(out) > 0 {
		return fmt.Errorf("%s at the end: %v", unexpected, out)
	}
	return nil
}

func checkState(system System, want string, of [][2]int64) error {
	s, ok := system.(Stater)
	if !ok {
		return nil
	}
	for _, w := range of {
		if got := s.State(transcriptKey, beamWindow(w)); got != want {
			return fmt.Errorf("the state of %v is %s, want %s", w, got, want)
		}
	}
	return nil
}

func beamWindow(w [2]int64) window.Window {
	return window.New(eventtime.Time(w[0]), eventtime.Time(w[1]+1))
}

// is says whether p has all that x names.
func (x expected) is(p Pane) bool {
	i := p.Info
	return (x.Window == nil || beamWindow(*x.Window) == p.Window) &&
		(x.Values == nil || slices.Equal(*x.Values, slices.Sorted(slices.Values(p.Values)))) &&
		(x.Timestamp == nil || eventtime.Time(*x.Timestamp) == p.Time) &&
		is(x.Index, i.Index) && is(x.Nonspeculative, i.OnTimeIndex) && is(x.Final, i.Last) &&
		is(x.Early, i.Timing == window.Early) && is(x.Late, i.Timing == window.Late) && !p.Retraction
}

func is[T comparable](want *T, got T) bool { return want == nil || *want == got }

func (x expected) String() string {
	text, err := yaml.Marshal(x)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ", ")
}

// strategy is what the case is about. Empty panes on time are wanted: Beam's default.
func (c transcript) strategy() (s Strategy, err error) {
	s = Strategy{Fn: window.Global(), Trigger: trigger.Default(), Lateness: c.AllowedLateness, Accumulation: Accumulating, EmptyOnTime: true}
	name, args, err := call(c.WindowFn)
	size := time.Duration(0)
	if err == nil && len(args) == 1 {
		var n int64
		n, err = strconv.ParseInt(args[0], 10, 64)
		size = time.Duration(n) * time.Millisecond
	}
	switch name {
	case "FixedWindows", "CustomTimestampingFixedWindowsWindowFn":
		s.Fn = window.Fixed(size)
	case "Sessions":
		s.Fn = window.Sessions(size)
	case "":
	default:
		err = fmt.Errorf("no such windows: %s", c.WindowFn)
	}
	if err == nil && c.TriggerFn != "" {
		s.Trigger, err = beamTrigger(c.TriggerFn)
	}
	switch c.TimestampCombiner {
	case "", "OUTPUT_AT_EOW":
	case "OUTPUT_AT_EARLIEST":
		s.Timestamps = Earliest
	case "OUTPUT_AT_LATEST":
		s.Timestamps = Latest
	case "OUTPUT_AT_EARLIEST_TRANSFORMED":
		// Beam's window function of that name gives each element to its pane 100 later.
		s.Timestamps, s.OutputTime = Earliest, func(t eventtime.Time) eventtime.Time { return t + 100 }
	default:
		err = errors.Join(err, fmt.Errorf("no such combiner: %s", c.TimestampCombiner))
	}
	switch strings.ToUpper(c.AccumulationMode) {
	case "", "ACCUMULATING":
	case "DISCARDING":
		s.Accumulation = Discarding
	default:
		err = errors.Join(err, fmt.Errorf("no such accumulation: %s", c.AccumulationMode))
	}
	return s, errors.Join(err, s.Validate())
}

// call takes "Name(a, b(c))" apart.
func call(text string) (name string, args []string, err error) {
	name, rest, found := strings.Cut(text, "(")
	if !found {
		return name, nil, nil
	}
	depth, from := 1, 0
	for i, r := range rest {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 1 && r == ',' || depth == 0 {
			args = append(args, strings.TrimSpace(rest[from:i]))
			from = i + 1
		}
		if depth == 0 && i != len(rest)-1 {
			break
		}
	}
	if depth != 0 || from != len(rest) {
		return "", nil, fmt.Errorf("%q: brackets", text)
	}
	return name, args, nil
}

// beamTrigger reads a trigger as Python has it.
func beamTrigger(text string) (trigger.Trigger, error) {
	name, args, err := call(text)
	if err != nil {
		return nil, err
	}
	switch {
	case name == "Default" && len(args) == 0:
		return trigger.Default(), nil
	case name == "AfterCount" && len(args) == 1:
		n, err := strconv.Atoi(args[0])
		return trigger.AfterCount(n), err
	case name == "AfterWatermark":
		w := trigger.AfterWatermark()
		for _, a := range args {
			part, of, _ := strings.Cut(a, "=")
			t, err := beamTrigger(of)
			switch {
			case err != nil:
				return nil, err
			case part == "early":
				w = w.Early(t)
			case part == "late":
				w = w.Late(t)
			default:
				return nil, fmt.Errorf("%q: AfterWatermark has no %s", text, part)
			}
		}
		return w, nil
	}
	return nil, fmt.Errorf("no such trigger: %s", text)
}
