// Command sample cuts the sample of the flights example out of the full file:
//
//	go run ./examples/flights/internal/sample flights-3m.parquet examples/flights/testdata/flights-100k.parquet
//
// It takes the first 100,000 rows, so that the sample is as dense and as much out of order as the full
// file is, and writes them in 12 row groups with statistics.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/millstream/millstream/io/parquetio"
	"github.com/millstream/millstream/sdk/connector"
)

const (
	sampleRows   = 100_000
	rowsPerGroup = 8_334
)

// flight is a row of the full file.
type flight struct {
	Date        time.Time `parquet:"date"`
	Delay       int64     `parquet:"delay"`
	Distance    int64     `parquet:"distance"`
	Origin      string    `parquet:"origin"`
	Destination string    `parquet:"destination"`
}

// sample is a row of the sample. Its date is local time, as in the full file, which the library writes
// from a number only.
type sample struct {
	Date        int64  `parquet:"date,timestamp(microsecond:local),dict"`
	Delay       int64  `parquet:"delay,dict"`
	Distance    int64  `parquet:"distance,dict"`
	Origin      string `parquet:"origin,dict"`
	Destination string `parquet:"destination,dict"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sample FROM TO")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sample:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, from, to string) (err error) {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := parquet.NewGenericWriter[sample](out, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(rowsPerGroup))
	if err := copyRows(ctx, from, w); err != nil {
		return err
	}
	return w.Close()
}

func copyRows(ctx context.Context, from string, w *parquet.GenericWriter[sample]) error {
	src := parquetio.Source[flight](from)
	splits, err := src.Splits(ctx)
	if err != nil {
		return err
	}
	r, err := src.Open(ctx, connector.Subtask{Parallelism: 1})
	if err != nil {
		return err
	}
	defer r.Close() // read only: nothing can be lost
	if err := r.Assign(splits); err != nil {
		return err
	}
	for left := sampleRows; left > 0; {
		b, err := r.Read(ctx, min(left, 1024))
		if err != nil {
			return err
		}
		rows := make([]sample, len(b.Records))
		for i, f := range b.Records {
			rows[i] = sample{f.Date.UnixMicro(), f.Delay, f.Distance, f.Origin, f.Destination}
		}
		if _, err := w.Write(rows); err != nil {
			return err
		}
		if left -= len(rows); left > 0 && b.Status == connector.End {
			return fmt.Errorf("%s has %d rows fewer than the sample wants", from, left)
		}
	}
	return nil
}
