package kernel

import (
	"fmt"
	"runtime/debug"
)

// Guard calls f, which calls user code outside the loop of a subtask, and makes an error of a panic.
func Guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}
