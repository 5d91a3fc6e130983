package coder

import (
	"fmt"

	"github.com/millstream/millstream/internal/eventtime"
)

// Timer sets a timer of a key, or clears it.
type Timer[K, W any] struct {
	Key     K
	Tag     string // tells timers of one family apart
	Windows []W
	// Clear takes the timer away. The fields below are then not encoded and must be zero.
	Clear bool
	Fire  eventtime.Time // when to fire
	Hold  eventtime.Time // the output timestamp, which holds the watermark
	Pane  Pane
}

// TimerOf is beam:coder:timer:v1: key, tag, windows as an iterable, clear bit; then, unless it clears,
// the two instants and the pane.
func TimerOf[K, W any](key Coder[K], window Coder[W]) Coder[Timer[K, W]] {
	return timerCoder[K, W]{key, IterableOf(window)}
}

type timerCoder[K, W any] struct {
	key     Coder[K]
	windows Coder[[]W]
}

func (c timerCoder[K, W]) Append(dst []byte, t Timer[K, W]) ([]byte, error) {
	if t.Clear && (t.Fire != 0 || t.Hold != 0 || t.Pane != Pane{}) {
		return dst, fmt.Errorf("timer %q clears, yet has a time or a pane", t.Tag)
	}
	out, err := c.key.Append(dst, t.Key)
	if err != nil {
		return dst, fmt.Errorf("timer key: %w", err)
	}
	out = append(appendVarint(out, uint64(len(t.Tag))), t.Tag...)
	if out, err = c.windows.Append(out, t.Windows); err != nil {
		return dst, fmt.Errorf("timer windows: %w", err)
	}
	if out = appendBool(out, t.Clear); t.Clear {
		return out, nil
	}
	if out, err = appendInstant(out, t.Fire); err != nil {
		return dst, fmt.Errorf("timer fire time: %w", err)
	}
	if out, err = appendInstant(out, t.Hold); err != nil {
		return dst, fmt.Errorf("timer hold time: %w", err)
	}
	if out, err = appendPane(out, t.Pane); err != nil {
		return dst, err
	}
	return out, nil
}

func (c timerCoder[K, W]) Decode(src []byte) (Timer[K, W], []byte, error) {
	t, rest, err := c.decode(src)
	if err != nil {
		return Timer[K, W]{}, nil, fmt.Errorf("decode timer: %w", err)
	}
	return t, rest, nil
}

func (c timerCoder[K, W]) decode(src []byte) (t Timer[K, W], rest []byte, err error) {
	if t.Key, rest, err = c.key.Decode(src); err != nil {
		return t, nil, fmt.Errorf("key: %w", err)
	}
	if t.Tag, rest, err = StringUTF8().Decode(rest); err != nil {
		return t, nil, fmt.Errorf("tag: %w", err)
	}
	if t.Windows, rest, err = c.windows.Decode(rest); err != nil {
		return t, nil, fmt.Errorf("windows: %w", err)
	}
	if t.Clear, rest, err = decodeBool(rest); err != nil || t.Clear {
		return t, rest, err
	}
	if t.Fire, rest, err = decodeInstant(rest); err != nil {
		return t, nil, fmt.Errorf("fire time: %w", err)
	}
	if t.Hold, rest, err = decodeInstant(rest); err != nil {
		return t, nil, fmt.Errorf("hold time: %w", err)
	}
	t.Pane, rest, err = decodePane(rest)
	return t, rest, err
}

func (c timerCoder[K, W]) Spec() Spec {
	return Spec{URN: urnTimer, Components: []Spec{SpecOf(c.key), SpecOf(c.windows).Components[0]}}
}
