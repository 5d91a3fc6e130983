package files

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millstream/millstream/sdk/connector"
)

// A part that is gone stays gone: the job is not to try for minutes.
func TestALostPartIsAPermanentError(t *testing.T) {
	dir := t.TempDir()
	sink := rowSink(dir)
	w, err := sink.Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), make([]connector.Record[testRow], 1)); err != nil {
		t.Fatal(err)
	}
	parts, err := w.Prepare(t.Context(), 1)
	if err != nil || len(parts) != 1 {
		t.Fatalf("%v, %v", parts, err)
	}
	if err := os.Remove(filepath.Join(dir, parts[0].staged())); err != nil {
		t.Fatal(err)
	}
	if err := sink.Commit(t.Context(), 1, parts); !errors.Is(err, connector.ErrPermanent) {
		t.Errorf("%v is tried again", err)
	}
}
