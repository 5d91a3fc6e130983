package failpoint_test

import (
	"errors"
	"testing"

	"github.com/millstream/millstream/internal/failpoint"
)

func TestPointsFireAtTheirPass(t *testing.T) {
	defer failpoint.Arm("", "")
	if err := failpoint.Arm("a=error@2,b=error", ""); err != nil {
		t.Fatal(err)
	}
	for pass, want := range []bool{false, true, false} {
		if err := failpoint.Hit("a"); errors.Is(err, failpoint.ErrInjected) != want {
			t.Errorf("pass %d of a: %v", pass+1, err)
		}
		if err := failpoint.Hit("b"); err == nil {
			t.Errorf("pass %d of b: no error", pass+1)
		}
		if err := failpoint.Hit("c"); err != nil {
			t.Errorf("c is not armed, but: %v", err)
		}
	}
	if err := failpoint.Arm("a=error", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if failpoint.Hit("a") == nil || failpoint.Hit("a") != nil {
		t.Error("with a directory a point fires once")
	}
}

func TestMalformedPointsAreRefused(t *testing.T) {
	for _, spec := range []string{"a", "a=", "=kill", "a=explode", "a=kill@0", "a=kill@x"} {
		if failpoint.Arm(spec, "") == nil {
			t.Errorf("%q was taken", spec)
		}
	}
}

func BenchmarkDisarmed(b *testing.B) {
	for b.Loop() {
		if err := failpoint.Hit("a"); err != nil {
			b.Fatal(err)
		}
	}
}
