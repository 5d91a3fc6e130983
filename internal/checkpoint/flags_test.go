package checkpoint

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFlagsThatDifferAreNamed(t *testing.T) {
	f := NewFlags(map[string]string{"input": "a", "output": "o", "rate": "", "same": "x"})
	changed, added, gone := f.Differ(map[string]string{"input": "b", "rate": "0", "same": "x", "new": ""})
	if diff := cmp.Diff([][]string{{"input", "rate"}, {"new"}, {"output"}}, [][]string{changed, added, gone}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestValuesOfFlagsAreNotStored: they may be secrets. Nor does a manifest tell that two jobs have the same one.
func TestValuesOfFlagsAreNotStored(t *testing.T) {
	values := map[string]string{"password": "hunter2"}
	m := example()
	m.Flags = NewFlags(values)
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(b, []byte("hunter2")) {
		t.Error("the manifest has the value of a flag")
	}
	if NewFlags(values).Digests[0] == m.Flags.Digests[0] {
		t.Error("two jobs have the same digest of the same value")
	}
}
