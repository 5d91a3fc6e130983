package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// windowFn translates a window function.
func windowFn(fn window.Fn) (*pipepb.FunctionSpec, error) {
	switch fn := fn.(type) {
	case window.GlobalFn:
		return &pipepb.FunctionSpec{Urn: urnGlobalWindows}, nil
	case window.FixedFn:
		return specOf(urnFixedWindows, &pipepb.FixedWindowsPayload{Size: durationpb.New(fn.Size), Offset: offset(fn.Shift, fn.Size)})
	case window.SlidingFn:
		return specOf(urnSliding, &pipepb.SlidingWindowsPayload{
			Size: durationpb.New(fn.Size), Period: durationpb.New(fn.Period), Offset: offset(fn.Shift, fn.Period),
		})
	case window.SessionsFn: // whether they are merged is said by the strategy
		return specOf(urnSessions, &pipepb.SessionWindowsPayload{GapSize: durationpb.New(fn.Gap)})
	case window.CalendarFn:
		return jsonSpec(urnCalendar, calendarPayload{fn.Unit, fn.N, fn.Offset, fn.Day, fn.Zone})
	case window.CustomFn:
		return jsonSpec(urnCustom, customPayload{fn.Name, fn.Params})
	}
	return nil, fmt.Errorf("the window function %T has no translation: add it to sdk/plan/windowing.go", fn)
}

// calendarPayload is a window.CalendarFn.
type calendarPayload struct {
	Unit   window.CalendarUnit `json:"unit"`
	N      int                 `json:"n"`
	Offset int                 `json:"offset"`
	Day    int                 `json:"day,omitempty"`
	Zone   string              `json:"zone"`
}

// customPayload is the identity of a window.CustomFn.
type customPayload struct {
	Name   string `json:"name"`
	Params string `json:"params"`
}

func jsonSpec(urn string, payload any) (*pipepb.FunctionSpec, error) {
	data, err := json.Marshal(payload)
	return &pipepb.FunctionSpec{Urn: urn, Payload: data}, err
}

// offset is shift as Beam has it: not negative, below the period, and absent if it is 0.
func offset(shift, period time.Duration) *timestamppb.Timestamp {
	shift = (shift%period + period) % period
	if shift == 0 {
		return nil
	}
	return timestamppb.New(time.Unix(0, int64(shift)))
}

// merging says whether windows of fn merge, and whether they have.
func merging(fn window.Fn) pipepb.MergeStatus_Enum {
	if _, merges := window.Merging(fn); merges {
		return pipepb.MergeStatus_NEEDS_MERGE
	}
	if window.HasMerged(fn) {
		return pipepb.MergeStatus_ALREADY_MERGED
	}
	return pipepb.MergeStatus_NON_MERGING
}

// assignsToOne says whether no element is in more than one window.
func assignsToOne(fn window.Fn) bool {
	switch fn.(type) {
	case window.SlidingFn, window.CustomFn: // of the latter it is not known
		return false
	}
	return true
}

// windowCoder is how Beam encodes the windows of fn.
func windowCoder(fn window.Fn) coder.Spec {
	if _, ok := fn.(window.GlobalFn); ok {
		return coder.Spec{URN: urnGlobalWindow}
	}
	return coder.Spec{URN: urnIntervalWindow}
}

// windowsText is the way back from windowFn, for readers.
func windowsText(fn *pipepb.FunctionSpec) string {
	switch fn.GetUrn() {
	case urnGlobalWindows:
		return "global"
	case urnFixedWindows:
		var p pipepb.FixedWindowsPayload
		if proto.Unmarshal(fn.GetPayload(), &p) == nil {
			return "fixed " + short(p.GetSize().AsDuration()) + offsetText(p.Offset)
		}
	case urnSliding:
		var p pipepb.SlidingWindowsPayload
		if proto.Unmarshal(fn.GetPayload(), &p) == nil {
			return fmt.Sprintf("sliding %s every %s%s", short(p.GetSize().AsDuration()), short(p.GetPeriod().AsDuration()), offsetText(p.Offset))
		}
	case urnSessions:
		var p pipepb.SessionWindowsPayload
		if proto.Unmarshal(fn.GetPayload(), &p) == nil {
			return "sessions " + short(p.GetGapSize().AsDuration()) + " apart"
		}
	case urnCalendar:
		var p calendarPayload
		if json.Unmarshal(fn.GetPayload(), &p) == nil {
			return "calendar " + window.CalendarFn{Unit: p.Unit, N: p.N, Offset: p.Offset, Day: p.Day, Zone: p.Zone}.Describe()
		}
	case urnCustom:
		var p customPayload
		if json.Unmarshal(fn.GetPayload(), &p) == nil {
			text := fmt.Sprintf("custom %q", p.Name)
			if p.Params != "" {
				text += fmt.Sprintf(" with %q", p.Params)
			}
			return text
		}
	}
	return fmt.Sprintf("%s %x", fn.GetUrn(), fn.GetPayload())
}

func offsetText(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return " from " + short(t.AsTime().Sub(time.Unix(0, 0)))
}

// short is 1h for 1h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// windowing adds a strategy and returns its id, which is what it says.
func (b *builder) windowing(s kernel.Strategy) (string, error) {
	fn, err := windowFn(s.Fn)
	if err != nil {
		return "", err
	}
	t, err := triggerOf(s.Trigger)
	if err != nil {
		return "", err
	}
	w := &pipepb.WindowingStrategy{
		WindowFn: fn, MergeStatus: merging(s.Fn), WindowCoderId: b.coder(windowCoder(s.Fn)),
		Trigger: t, AccumulationMode: accumulations[s.Accumulation], AllowedLateness: s.AllowedLateness,
		OutputTime:      outputTimes[s.Timestamps],
		ClosingBehavior: pipepb.ClosingBehavior_EMIT_IF_NONEMPTY, OnTimeBehavior: pipepb.OnTimeBehavior_FIRE_IF_NONEMPTY,
		AssignsToOneWindow: assignsToOne(s.Fn), EnvironmentId: environment,
	}
	if s.EmptyOnTime {
		w.OnTimeBehavior = pipepb.OnTimeBehavior_FIRE_ALWAYS
	}
	if s.EmptyLast {
		w.ClosingBehavior = pipepb.ClosingBehavior_EMIT_ALWAYS
	}
	text := windowingText(w)
	id := fmt.Sprintf("%s; %s; lateness %s; %s", text[0], text[1], text[2], text[3])
	b.c.WindowingStrategies[id] = w
	return id, nil
}

var (
	accumulations = [...]pipepb.AccumulationMode_Enum{
		kernel.Discarding:   pipepb.AccumulationMode_DISCARDING,
		kernel.Accumulating: pipepb.AccumulationMode_ACCUMULATING,
		kernel.Retracting:   pipepb.AccumulationMode_RETRACTING,
	}
	outputTimes = [...]pipepb.OutputTime_Enum{
		kernel.EndOfWindow: pipepb.OutputTime_END_OF_WINDOW,
		kernel.Earliest:    pipepb.OutputTime_EARLIEST_IN_PANE,
		kernel.Latest:      pipepb.OutputTime_LATEST_IN_PANE,
	}
)

// windowingNames are the properties in the order of windowingText.
var windowingNames = []string{"windows", "trigger", "allowed lateness", "panes"}

// windowingText is what a strategy says, one text a property. All that windowing sets follows from it.
func windowingText(w *pipepb.WindowingStrategy) []string {
	windows := windowsText(w.GetWindowFn())
	if w.GetMergeStatus() == pipepb.MergeStatus_ALREADY_MERGED {
		windows += ", merged"
	}
	panes := strings.ToLower(w.GetAccumulationMode().String())
	switch w.GetOutputTime() {
	case pipepb.OutputTime_EARLIEST_IN_PANE:
		panes += ", at their earliest element"
	case pipepb.OutputTime_LATEST_IN_PANE:
		panes += ", at their latest element"
	}
	if w.GetOnTimeBehavior() == pipepb.OnTimeBehavior_FIRE_ALWAYS {
		panes += ", also empty at the end"
	}
	if w.GetClosingBehavior() == pipepb.ClosingBehavior_EMIT_ALWAYS {
		panes += ", also empty at the expiry"
	}
	return []string{
		windows, triggerText(w.GetTrigger()), short(time.Duration(w.GetAllowedLateness()) * time.Millisecond), panes,
	}
}
