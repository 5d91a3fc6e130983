package coordinator

import (
	"errors"
	"testing"
)

// A full disk fails each time with another file name: it is one failure all the same.
func TestFailuresThatDifferInRandomNamesAreOneKind(t *testing.T) {
	r := retries{limit: 1}
	fail := func(attempt int64, text string) bool {
		_, more := r.failed(StepFailed{Attempt: attempt, Step: "sum", Err: errors.New(text)})
		return more
	}
	if !fail(1, "put shared/1/1/5/GP6ZQK2WXW-delta: write put-215977361: no space left on device") {
		t.Fatal("the first failure is not tried again")
	}
	if !fail(2, "put shared/1/2/6/A7BCDEFGHI-delta: permission denied") {
		t.Fatal("another failure is taken for the same")
	}
	if fail(3, "put shared/1/3/7/ZZ9XK2WXWA-delta: write put-99: no space left on device") {
		t.Error("the same failure with another name is tried again for ever")
	}
}
