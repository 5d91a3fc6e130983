package kernel

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrExited is the error of user code that ended the goroutine that called it.
var ErrExited = errors.New("its code ended the goroutine that called it, as t.Fatal, t.FailNow and runtime.Goexit do: return an error instead")

// Watch calls f, which calls user code, and then end, with what came of it: f's error, or one that a panic is made into. If f
// ends its goroutine, end gets ErrExited and is the last that is called: Watch does not return.
func Watch(f func() error, end func(error)) {
	err := ErrExited
	defer func() {
		if r := recover(); r != nil {
			err = Panicked(r)
		}
		end(err)
	}()
	err = f()
}

// Panicked makes an error of a panic, with the stack of the caller.
func Panicked(r any) error { return fmt.Errorf("panic: %v\n%s", r, debug.Stack()) }

// Guard is Watch for user code beside the subtasks: f runs in a goroutine of its own, so that Guard always returns.
func Guard(f func() error) error {
	done := make(chan error, 1)
	go Watch(f, func(err error) { done <- err })
	return <-done
}
