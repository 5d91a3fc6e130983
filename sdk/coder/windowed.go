package coder

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/millstream/millstream/internal/eventtime"
)

// Interval is a window of event time, [Start, End).
type Interval struct {
	Start, End eventtime.Time
}

// IntervalWindow is beam:coder:interval_window:v1: the end as an instant, then the span in
// milliseconds as a varint. A window whose end is before its start is an error.
func IntervalWindow() Coder[Interval] { return intervalCoder{} }

type intervalCoder struct{}

func (intervalCoder) Append(dst []byte, w Interval) ([]byte, error) {
	if w.End < w.Start || w.Start < eventtime.Min {
		return dst, fmt.Errorf("window [%d, %d) ms is not in Beam's range or ends before it starts", w.Start, w.End)
	}
	out, err := appendInstant(dst, w.End)
	if err != nil {
		return dst, fmt.Errorf("window end: %w", err)
	}
	return appendVarint(out, uint64(w.End-w.Start)), nil
}

func (intervalCoder) Decode(src []byte) (Interval, []byte, error) {
	end, rest, err := decodeInstant(src)
	if err != nil {
		return Interval{}, nil, fmt.Errorf("decode window end: %w", err)
	}
	span, rest, err := decodeVarint(rest)
	if err != nil {
		return Interval{}, nil, fmt.Errorf("decode window span: %w", err)
	}
	if span > uint64(end-eventtime.Min) {
		return Interval{}, nil, fmt.Errorf("decode window: span %d ms from end %d ms is outside Beam's range", int64(span), end)
	}
	return Interval{Start: end - eventtime.Time(span), End: end}, rest, nil
}

func (intervalCoder) Spec() Spec { return Spec{URN: urnIntervalWindow} }

// Global is the one window that holds all of time.
type Global struct{}

// GlobalWindow is beam:coder:global_window:v1: no bytes at all.
func GlobalWindow() Coder[Global] { return globalCoder{} }

type globalCoder struct{}

func (globalCoder) Append(dst []byte, _ Global) ([]byte, error) { return dst, nil }
func (globalCoder) Decode(src []byte) (Global, []byte, error)   { return Global{}, src, nil }
func (globalCoder) Spec() Spec                                  { return Spec{URN: urnGlobalWindow} }

// CustomWindow is a window of the user's own type with its greatest timestamp, which is all that an
// engine must know of it.
type CustomWindow[W any] struct {
	MaxTimestamp eventtime.Time // inclusive
	Window       W
}

// CustomWindowOf is beam:coder:custom_window:v1: the greatest timestamp as an instant, then the window.
func CustomWindowOf[W any](window Coder[W]) Coder[CustomWindow[W]] {
	return customWindowCoder[W]{window}
}

type customWindowCoder[W any] struct{ window Coder[W] }

func (c customWindowCoder[W]) Append(dst []byte, v CustomWindow[W]) ([]byte, error) {
	out, err := appendInstant(dst, v.MaxTimestamp)
	if err != nil {
		return dst, fmt.Errorf("window's greatest timestamp: %w", err)
	}
	if out, err = c.window.Append(out, v.Window); err != nil {
		return dst, fmt.Errorf("window: %w", err)
	}
	return out, nil
}

func (c customWindowCoder[W]) Decode(src []byte) (v CustomWindow[W], rest []byte, err error) {
	if v.MaxTimestamp, rest, err = decodeInstant(src); err != nil {
		return CustomWindow[W]{}, nil, fmt.Errorf("decode window's greatest timestamp: %w", err)
	}
	if v.Window, rest, err = c.window.Decode(rest); err != nil {
		return CustomWindow[W]{}, nil, fmt.Errorf("window: %w", err)
	}
	return v, rest, nil
}

func (c customWindowCoder[W]) Spec() Spec {
	return Spec{URN: urnCustomWindow, Components: []Spec{SpecOf(c.window)}}
}

// Timing says when a pane fired, relative to the watermark.
type Timing uint8

// The timings, as the pane byte numbers them.
const (
	TimingEarly Timing = iota
	TimingOnTime
	TimingLate
	TimingUnknown // not fired by a trigger
)

// Pane tells which firing of its window an element came from.
type Pane struct {
	First, Last bool
	Timing      Timing
	Index       int64 // of this firing, from 0
	// NonSpeculativeIndex counts the firings that were not early, from 0; it is -1 if this one was.
	NonSpeculativeIndex int64
}

// NoFiring is the pane of an element that no trigger fired.
var NoFiring = Pane{First: true, Last: true, Timing: TimingUnknown}

// The high half of the pane byte says how many indexes follow.
const (
	paneNoIndex  = 0 << 4 // both are 0
	paneOneIndex = 1 << 4 // NonSpeculativeIndex is -1 if early, else the same
	paneIndexes  = 2 << 4
)

// appendPane appends p as Beam's PaneInfoCoder does. It fails for panes that this form cannot tell.
func appendPane(dst []byte, p Pane) ([]byte, error) {
	b := byte(p.Timing) << 2
	if p.First {
		b |= 1
	}
	if p.Last {
		b |= 2
	}
	switch {
	case p.Timing > TimingUnknown || p.Index < 0:
		return dst, fmt.Errorf("pane %+v is out of range", p)
	case p.Timing == TimingUnknown && (p.Index != 0 || p.NonSpeculativeIndex != 0):
		return dst, fmt.Errorf("pane %+v: an unknown timing has no index", p)
	case p.Timing == TimingEarly && p.NonSpeculativeIndex != -1, p.Timing != TimingEarly && p.NonSpeculativeIndex < 0:
		return dst, fmt.Errorf("pane %+v: the non-speculative index is -1 if and only if the pane is early", p)
	case p.Index == 0 && p.NonSpeculativeIndex == 0:
		return append(dst, b|paneNoIndex), nil
	case p.Timing == TimingEarly || p.Index == p.NonSpeculativeIndex:
		return appendVarint(append(dst, b|paneOneIndex), uint64(p.Index)), nil
	}
	dst = appendVarint(append(dst, b|paneIndexes), uint64(p.Index))
	return appendVarint(dst, uint64(p.NonSpeculativeIndex)), nil
}

func decodePane(src []byte) (p Pane, rest []byte, err error) {
	if len(src) == 0 {
		return Pane{}, nil, fmt.Errorf("decode pane: %w", errShort)
	}
	b, rest := src[0], src[1:]
	p = Pane{First: b&1 != 0, Last: b&2 != 0, Timing: Timing(b >> 2 & 3)}
	form := b & 0xf0
	if form > paneIndexes || p.Timing == TimingUnknown && form != paneNoIndex || p.Timing == TimingEarly && form == paneIndexes {
		return Pane{}, nil, fmt.Errorf("decode pane: first byte %02x is of no known form", b)
	}
	if form != paneNoIndex {
		if p.Index, rest, err = decodePaneIndex(rest); err != nil {
			return Pane{}, nil, fmt.Errorf("decode pane: index: %w", err)
		}
		p.NonSpeculativeIndex = p.Index
	}
	if form == paneIndexes {
		if p.NonSpeculativeIndex, rest, err = decodePaneIndex(rest); err != nil {
			return Pane{}, nil, fmt.Errorf("decode pane: non-speculative index: %w", err)
		}
	}
	if p.Timing == TimingEarly {
		p.NonSpeculativeIndex = -1
	}
	return p, rest, nil
}

func decodePaneIndex(src []byte) (int64, []byte, error) {
	x, rest, err := decodeVarint(src)
	if err == nil && x > math.MaxInt64 {
		err = fmt.Errorf("%d is negative", int64(x))
	}
	return int64(x), rest, err
}

// WindowedValue is an element with its timestamp, its windows and its pane.
type WindowedValue[T, W any] struct {
	Value     T
	Timestamp eventtime.Time
	Windows   []W
	Pane      Pane
}

// WindowedValueOf is beam:coder:windowed_value:v1: timestamp, windows as an iterable, pane, value.
func WindowedValueOf[T, W any](value Coder[T], window Coder[W]) Coder[WindowedValue[T, W]] {
	return windowedValueCoder[T, W]{value, IterableOf(window)}
}

type windowedValueCoder[T, W any] struct {
	value   Coder[T]
	windows Coder[[]W]
}

func (c windowedValueCoder[T, W]) appendHeader(dst []byte, v WindowedValue[T, W]) ([]byte, error) {
	out, err := appendInstant(dst, v.Timestamp)
	if err != nil {
		return nil, fmt.Errorf("timestamp: %w", err)
	}
	if out, err = c.windows.Append(out, v.Windows); err != nil {
		return nil, fmt.Errorf("windows: %w", err)
	}
	return appendPane(out, v.Pane)
}

func (c windowedValueCoder[T, W]) decodeHeader(src []byte) (v WindowedValue[T, W], rest []byte, err error) {
	if v.Timestamp, rest, err = decodeInstant(src); err != nil {
		return v, nil, fmt.Errorf("decode timestamp: %w", err)
	}
	if v.Windows, rest, err = c.windows.Decode(rest); err != nil {
		return v, nil, fmt.Errorf("windows: %w", err)
	}
	v.Pane, rest, err = decodePane(rest)
	return v, rest, err
}

func (c windowedValueCoder[T, W]) Append(dst []byte, v WindowedValue[T, W]) ([]byte, error) {
	out, err := c.appendHeader(dst, v)
	if err != nil {
		return dst, err
	}
	if out, err = c.value.Append(out, v.Value); err != nil {
		return dst, fmt.Errorf("value: %w", err)
	}
	return out, nil
}

func (c windowedValueCoder[T, W]) appendOuter(dst []byte, v WindowedValue[T, W]) ([]byte, error) {
	out, err := c.appendHeader(dst, v)
	if err != nil {
		return dst, err
	}
	if out, err = appendOuter(c.value, out, v.Value); err != nil {
		return dst, fmt.Errorf("value: %w", err)
	}
	return out, nil
}

func (c windowedValueCoder[T, W]) Decode(src []byte) (v WindowedValue[T, W], rest []byte, err error) {
	if v, rest, err = c.decodeHeader(src); err != nil {
		return WindowedValue[T, W]{}, nil, err
	}
	if v.Value, rest, err = c.value.Decode(rest); err != nil {
		return WindowedValue[T, W]{}, nil, fmt.Errorf("value: %w", err)
	}
	return v, rest, nil
}

func (c windowedValueCoder[T, W]) decodeOuter(src []byte) (v WindowedValue[T, W], err error) {
	if v, src, err = c.decodeHeader(src); err != nil {
		return WindowedValue[T, W]{}, err
	}
	if v.Value, err = decodeOuter(c.value, src); err != nil {
		return WindowedValue[T, W]{}, fmt.Errorf("value: %w", err)
	}
	return v, nil
}

func (c windowedValueCoder[T, W]) Spec() Spec {
	return Spec{URN: urnWindowedValue, Components: []Spec{SpecOf(c.value), SpecOf(c.windows).Components[0]}}
}

// ParamWindowedValueOf is beam:coder:param_windowed_value:v1: the value alone; timestamp, windows and
// pane are the same for all and stand in payload, a windowed value of empty bytes. Append fails for
// a value whose own differ from those.
func ParamWindowedValueOf[T any, W comparable](value Coder[T], window Coder[W], payload []byte) (Coder[WindowedValue[T, W]], error) {
	header, rest, err := WindowedValueOf(Bytes(), window).Decode(payload)
	if err == nil && len(rest)+len(header.Value) > 0 {
		err = fmt.Errorf("%d bytes are left over", len(rest)+len(header.Value))
	}
	if err != nil {
		return nil, fmt.Errorf("payload of param windowed value: %w", err)
	}
	return paramWindowedValueCoder[T, W]{value, window, bytes.Clone(payload), WindowedValue[T, W]{
		Timestamp: header.Timestamp, Windows: header.Windows, Pane: header.Pane}}, nil
}

type paramWindowedValueCoder[T any, W comparable] struct {
	value   Coder[T]
	window  Coder[W]
	payload []byte
	header  WindowedValue[T, W] // its Value is not used
}

func (c paramWindowedValueCoder[T, W]) check(v WindowedValue[T, W]) error {
	if v.Timestamp != c.header.Timestamp || v.Pane != c.header.Pane || !slices.Equal(v.Windows, c.header.Windows) {
		return fmt.Errorf("timestamp %v, windows %v and pane %+v are not the coder's own: %v, %v, %+v",
			v.Timestamp, v.Windows, v.Pane, c.header.Timestamp, c.header.Windows, c.header.Pane)
	}
	return nil
}

func (c paramWindowedValueCoder[T, W]) with(v T) WindowedValue[T, W] {
	w := c.header
	w.Value, w.Windows = v, slices.Clone(w.Windows)
	return w
}

func (c paramWindowedValueCoder[T, W]) Append(dst []byte, v WindowedValue[T, W]) ([]byte, error) {
	if err := c.check(v); err != nil {
		return dst, err
	}
	return c.value.Append(dst, v.Value)
}

func (c paramWindowedValueCoder[T, W]) appendOuter(dst []byte, v WindowedValue[T, W]) ([]byte, error) {
	if err := c.check(v); err != nil {
		return dst, err
	}
	return appendOuter(c.value, dst, v.Value)
}

func (c paramWindowedValueCoder[T, W]) Decode(src []byte) (WindowedValue[T, W], []byte, error) {
	v, rest, err := c.value.Decode(src)
	if err != nil {
		return WindowedValue[T, W]{}, nil, err
	}
	return c.with(v), rest, nil
}

func (c paramWindowedValueCoder[T, W]) decodeOuter(src []byte) (WindowedValue[T, W], error) {
	v, err := decodeOuter(c.value, src)
	if err != nil {
		return WindowedValue[T, W]{}, err
	}
	return c.with(v), nil
}

func (c paramWindowedValueCoder[T, W]) Spec() Spec {
	return Spec{URN: urnParamWindowedValue, Payload: c.payload, Components: []Spec{SpecOf(c.value), SpecOf(c.window)}}
}
