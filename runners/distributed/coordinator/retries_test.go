package coordinator

import (
	"errors"
	"fmt"
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

// --max-retries=N is N retries, N + 1 attempts, also if the peers of the worker that failed are heard first.
func TestAFailureIsTriedAgainAsOftenAsAllowed(t *testing.T) {
	for _, retries := range []int{0, 1, 3} {
		for _, lostFirst := range []bool{false, true} {
			c := NewCore(Config{
				Parallelism: 2, Subtasks: scriptSubtasks, Workers: 2, Interval: 1000, CheckpointTimeout: 5000,
				HeartbeatTimeout: 1 << 40, Grace: 500, RestartDelay: 100, MaxRetries: retries, CommitTries: 3,
			}, 0)
			c.Step(Joined{1})
			c.Step(Joined{2})
			attempts := 0
			for now := int64(0); ; now += 20_000 {
				c.Step(Tick{now})
				c.Step(Prepared{Attempt: c.Attempt()})
				c.Step(Deployed{1, c.Attempt()})
				c.Step(Deployed{2, c.Attempt()})
				attempts++
				a := c.Attempt()
				if lostFirst {
					c.Step(StepFailed{Worker: 2, Attempt: a, Err: errors.New("worker 1 left"), Lost: true})
				}
				c.Step(StepFailed{Worker: 1, Attempt: a, Step: "read", Records: 7, Err: errors.New("poison")})
				if state, err := c.Over(); state != "" {
					if want := fmt.Sprintf("gave up after %d retries: poison", retries); err.Error() != want {
						t.Errorf("%v, want %s", err, want)
					}
					break
				}
				if attempts > 10 {
					t.Fatalf("%d retries are allowed, and there have been %d attempts", retries, attempts)
				}
			}
			if attempts != retries+1 {
				t.Errorf("%d retries are allowed, peers heard first: %v: %d attempts", retries, lostFirst, attempts)
			}
		}
	}
}
