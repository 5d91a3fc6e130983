package coder

import "testing"

// must returns v, or fails the test if the call that gave it failed: must(Of[int]())(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
