package kernel

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/millstream/millstream/sdk/state"
)

// KeyedDecl is what a keyed step may declare: what any step may, and cells and timers.
type KeyedDecl struct {
	Decl
	state.Cells
	timers []*timer
	expiry any // a keyedHandler of the step's types
	err    error
}

// OnWindowExpiry declares what is called for each key that has a cell set when its window's life ends (its
// end plus the allowed lateness), before the cells go: the last occasion to emit what they hold. It may not
// set timers any more.
func OnWindowExpiry[K comparable, Out any](d *KeyedDecl, f func(*ProcessContext, K, *Emitter[Out]) error) {
	if d.expiry != nil || f == nil {
		d.fail(errors.New("OnWindowExpiry takes one function, once"))
	}
	d.expiry = f
}

func (d *KeyedDecl) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// CheckKeyed returns what is wrong with the declarations of a step with keys K and outputs Out.
func CheckKeyed[K comparable, Out any](d *KeyedDecl) error {
	err := errors.Join(d.err, state.SetOf(d).Err())
	for _, t := range d.timers {
		_, ok := t.handler.(keyedHandler[K, Out])
		want := reflect.TypeFor[keyedHandler[K, Out]]()
		if t.family {
			_, ok = t.handler.(tagHandler[K, Out])
			want = reflect.TypeFor[tagHandler[K, Out]]()
		}
		if !ok {
			err = errors.Join(err, fmt.Errorf("timer %q: its handler is a %s, the step needs a %s", t.name, TypeText(reflect.TypeOf(t.handler)), TypeText(want)))
		}
	}
	if _, ok := d.expiry.(keyedHandler[K, Out]); !ok && d.expiry != nil {
		err = errors.Join(err, fmt.Errorf("OnWindowExpiry: its function is a %s, the step needs a %s", TypeText(reflect.TypeOf(d.expiry)), TypeText(reflect.TypeFor[keyedHandler[K, Out]]())))
	}
	return err
}

// names are those that users know by sdk.
var names = strings.NewReplacer("kernel.", "sdk.", "coder.KV[", "sdk.KV[", "coder.Iterable[", "sdk.Iterable[")

// TypeText is a type for messages, with the names that programs write.
func TypeText(t reflect.Type) string { return names.Replace(t.String()) }

// StateParts describes the declared cells and timers, for Node.State.
func (d *KeyedDecl) StateParts() (parts []StatePart) {
	for _, c := range state.SetOf(d).Decls {
		parts = append(parts, StatePart{Kind: "cell", Name: c.Name, Type: c.Type, Coder: &c.Coder})
	}
	for _, t := range d.timers {
		kind := t.by.String()
		if t.family {
			kind += " by tag"
		}
		parts = append(parts, StatePart{Kind: "timer", Name: t.name, Type: kind})
	}
	return parts
}

// Expires says whether OnWindowExpiry was declared.
func (d *KeyedDecl) Expires() bool { return d.expiry != nil }
