// Package failing runs what must make a test fail, and tells how it says so: for the tests of packages that fail tests.
package failing

import (
	"fmt"
	"runtime"
	"testing"
)

// Of runs test, in another goroutine, with a TB that is t but for Fatal and Fatalf. It returns the message with which one of these ended
// it, or "".
func Of(t testing.TB, test func(testing.TB)) string {
	f, done := &failing{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		test(f)
	}()
	<-done
	return f.said
}

type failing struct {
	testing.TB
	said string
}

func (f *failing) Helper() {}

func (f *failing) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

func (f *failing) Fatalf(format string, args ...any) {
	f.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
