// Package answer has the right answer of the flights example, from a plain loop over the file, and compares
// a job's output with it.
package answer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/parquet-go/parquet-go"
)

// Key is one row of the answer: an airport and the start of an hour.
type Key struct{ Origin, WindowStart string }

// Delays is what the example computes for a Key.
type Delays struct{ Flights, TotalDelay, MaxDelay int64 }

type flight struct {
	Date   int64  `parquet:"date,optional"` // µs
	Delay  int64  `parquet:"delay,optional"`
	Origin string `parquet:"origin,optional"`
}

// Loop computes the answer for a Parquet file of flights.
func Loop(path string) (map[Key]Delays, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := parquet.NewGenericReader[flight](f)
	defer r.Close()
	all := map[Key]Delays{}
	rows := make([]flight, 4096)
	for left := r.NumRows(); left > 0; {
		n, err := r.Read(rows)
		if n == 0 {
			return nil, fmt.Errorf("read %s: %d rows are missing: %w", path, left, err)
		}
		for _, f := range rows[:n] {
			at := time.UnixMicro(f.Date).Add(time.Duration(f.Delay) * time.Minute)
			k := Key{f.Origin, at.UTC().Truncate(time.Hour).Format(time.RFC3339)}
			d, seen := all[k]
			if !seen || f.Delay > d.MaxDelay {
				d.MaxDelay = f.Delay
			}
			d.Flights++
			d.TotalDelay += f.Delay
			all[k] = d
		}
		left -= int64(n)
	}
	return all, nil
}

// Output is what a job wrote.
type Output struct {
	Rows    int            // lines
	Last    map[Key]Delays // of the last pane
	Several int            // keys with more than one pane
}

type line struct {
	Origin      string `json:"origin"`
	WindowStart string `json:"window_start"`
	Flights     int64  `json:"flights"`
	TotalDelay  int64  `json:"total_delay"`
	MaxDelay    int64  `json:"max_delay"`
	Pane        int64  `json:"pane"`
}

// Read reads the .jsonl files of a directory. A pane that stands there twice is an error.
func Read(dir string) (*Output, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	out := &Output{Last: map[Key]Delays{}}
	panes := map[Key]map[int64]bool{}
	last := map[Key]int64{}
	for _, name := range files {
		if err := func() error {
			f, err := os.Open(name)
			if err != nil {
				return err
			}
			defer f.Close()
			for s := bufio.NewScanner(f); ; {
				if !s.Scan() {
					return s.Err()
				}
				var l line
				if err := json.Unmarshal(s.Bytes(), &l); err != nil {
					return fmt.Errorf("%s: %q: %w", name, s.Bytes(), err)
				}
				k := Key{l.Origin, l.WindowStart}
				if panes[k][l.Pane] {
					return fmt.Errorf("%s: pane %d of %v is there twice", name, l.Pane, k)
				}
				if panes[k] == nil {
					panes[k] = map[int64]bool{}
				}
				panes[k][l.Pane] = true
				out.Rows++
				if at, seen := last[k]; !seen || l.Pane > at {
					last[k], out.Last[k] = l.Pane, Delays{l.Flights, l.TotalDelay, l.MaxDelay}
				}
			}
		}(); err != nil {
			return nil, err
		}
	}
	for _, p := range panes {
		if len(p) > 1 {
			out.Several++
		}
	}
	return out, nil
}

// Compare tells the first difference between the last panes of a job and the answer.
func Compare(out *Output, want map[Key]Delays) error {
	for k, w := range want {
		if got, ok := out.Last[k]; !ok || got != w {
			return fmt.Errorf("%v: the job has %+v, the loop %+v", k, got, w)
		}
	}
	if len(out.Last) != len(want) {
		return fmt.Errorf("the job has %d airports and hours, the loop %d", len(out.Last), len(want))
	}
	return nil
}
