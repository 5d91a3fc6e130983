package memio_test

import (
	"fmt"
	"testing"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/testing/connectortest"
)

func words(n int) []string {
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprint("word ", i))
	}
	return rows
}

func TestSourceConforms(t *testing.T) {
	for _, test := range []struct {
		rows int
		opts []memio.Option
	}{
		{40, nil},
		{0, nil},
		{41, []memio.Option{memio.Splits(3), memio.Batch(4)}},
		{2, []memio.Option{memio.Splits(5), memio.Batch(100)}}, // some splits are empty
	} {
		rows := words(test.rows)
		t.Run(fmt.Sprint(test.rows), func(t *testing.T) {
			connectortest.Source(t, func() connector.Source[string, memio.Split] { return memio.Source(rows, test.opts...) }, rows)
		})
	}
}

func TestReaderDividesItsSplits(t *testing.T) {
	for _, opts := range [][]memio.Option{nil, {memio.Splits(3), memio.Batch(4)}} {
		rows := words(41)
		connectortest.Splitter(t, func() connector.Source[string, memio.Split] { return memio.Source(rows, opts...) }, rows)
	}
}

func TestSinkConforms(t *testing.T) {
	type part = memio.Part[connectortest.Row]
	connectortest.Sink(t, func(t *testing.T) connectortest.Place[part] {
		var out memio.Collector[connectortest.Row]
		return connectortest.Place[part]{
			Open: func() connector.Sink[connectortest.Row, part] { return &out },
			Rows: func() ([]connectortest.Row, error) { return out.Rows(), nil },
		}
	})
}

func TestSourceCutsAfterEveryElementUnlessTold(t *testing.T) {
	r, err := memio.Source(words(3)).Open(t.Context(), connector.Subtask{Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Assign([]memio.Split{{To: 3}}); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		b, err := r.Read(t.Context(), 100)
		if err != nil || len(b.Records) != 1 {
			t.Fatalf("read %d: %d records, %v; want 1", i, len(b.Records), err)
		}
	}
}

func TestSourceRefusesAPositionOutsideOfTheSlice(t *testing.T) {
	for _, sp := range []memio.Split{{Index: 1, To: 3}, {Index: -1}, {Next: 4, To: 3}, {Next: -1, To: 3}, {To: 4}, {From: 2, Next: 1, To: 3}} {
		r, err := memio.Source(words(3)).Open(t.Context(), connector.Subtask{Parallelism: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Assign([]memio.Split{sp}); err == nil {
			t.Errorf("%+v was taken", sp)
		}
	}
}
