package howto_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/testing/connectortest"
)

// Range is a split: the numbers from Next up to End.
type Range struct{ ID, Next, End int64 }

// Numbers is a source of the numbers 0 up to Of, in splits of Size.
type Numbers struct{ Of, Size int64 }

func (n Numbers) Splits(context.Context) (splits []Range, _ error) {
	for at := int64(0); at < n.Of; at += n.Size {
		splits = append(splits, Range{at, at, min(at+n.Size, n.Of)})
	}
	return splits, nil
}

func (Numbers) SplitID(r Range) string { return fmt.Sprint(r.ID) }

func (Numbers) Open(context.Context, connector.Subtask) (connector.Reader[int64, Range], error) {
	return &numberReader{}, nil
}

type numberReader struct {
	todo []Range // todo[0] is being read
	buf  []int64
}

func (r *numberReader) Assign(splits []Range) error { r.todo = append(r.todo, splits...); return nil }
func (r *numberReader) Close() error                { return nil }

func (r *numberReader) Read(_ context.Context, most int) (b connector.Batch[int64, Range], _ error) {
	if len(r.todo) == 0 {
		b.Status = connector.End
		return b, nil
	}
	at := &r.todo[0]
	r.buf = r.buf[:0]
	for ; at.Next < at.End && len(r.buf) < most; at.Next++ {
		r.buf = append(r.buf, at.Next)
	}
	b.Records, b.Split, b.Done = r.buf, *at, at.Next == at.End
	if b.Done {
		r.todo = r.todo[1:]
	}
	return b, nil
}

// ReadNumbers is what users call.
func ReadNumbers(name string, p *sdk.Pipeline, of int64, opts ...sdk.ReadOption) sdk.PCollection[int64] {
	return sdk.Read(name, p, Numbers{Of: of, Size: 1000}, opts...)
}

func TestNumbers(t *testing.T) {
	want := []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	connectortest.Source(t, func() connector.Source[int64, Range] { return Numbers{Of: 10, Size: 4} }, want)
}

// Staged is a committable: a file that waits for its name.
type Staged struct{ Name string }

// Dir writes JSON files into a directory, one for each subtask and checkpoint.
type Dir[T any] struct{ Path string }

func (d Dir[T]) Open(context.Context, connector.Subtask) (connector.Writer[T, Staged], error) {
	return &dirWriter[T]{dir: d.Path}, nil
}

// Commit renames. What has its name already was committed before.
func (d Dir[T]) Commit(_ context.Context, checkpoint int64, parts []Staged) error {
	for _, p := range parts {
		from, to := filepath.Join(d.Path, p.Name+".staged"), filepath.Join(d.Path, p.Name+".json")
		err := os.Rename(from, to)
		if errors.Is(err, fs.ErrNotExist) {
			if _, there := os.Stat(to); there == nil {
				continue
			}
			err = fmt.Errorf("%w: neither %s nor %s exists", connector.ErrPermanent, from, to)
		}
		if err != nil {
			return fmt.Errorf("commit checkpoint %d: %w", checkpoint, err)
		}
	}
	return nil
}

type dirWriter[T any] struct {
	dir    string
	values []T
}

func (w *dirWriter[T]) Write(_ context.Context, records []connector.Record[T]) error {
	for i := range records {
		w.values = append(w.values, records[i].Value)
	}
	return nil
}

// Prepare stages what was written, under a name that was never used.
func (w *dirWriter[T]) Prepare(context.Context, int64) ([]Staged, error) {
	if len(w.values) == 0 {
		return nil, nil
	}
	p := Staged{Name: rand.Text()}
	b, err := json.Marshal(w.values)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	w.values = nil
	return []Staged{p}, os.WriteFile(filepath.Join(w.dir, p.Name+".staged"), b, 0o666)
}

func (w *dirWriter[T]) Close() error { return nil }

func TestDir(t *testing.T) {
	connectortest.Sink(t, func(t *testing.T) connectortest.Place[Staged] {
		dir := t.TempDir()
		return connectortest.Place[Staged]{
			Open: func() connector.Sink[connectortest.Row, Staged] { return Dir[connectortest.Row]{dir} },
			Rows: func() ([]connectortest.Row, error) { return visible(dir) },
		}
	})
}

func visible(dir string) (rows []connectortest.Row, _ error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, f := range files {
		b, rerr := os.ReadFile(f)
		var more []connectortest.Row
		err = errors.Join(err, rerr, json.Unmarshal(b, &more))
		rows = append(rows, more...)
	}
	return rows, err
}
