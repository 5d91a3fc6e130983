// Check compares the output of the flights example with that of a plain loop over the input.
//
//	go run ./examples/flights/internal/check input.parquet output-directory
//	go run ./examples/flights/internal/check -rows input.parquet
//
// The second prints how many flights there are.
package main

import (
	"fmt"
	"os"

	"github.com/millstream/millstream/examples/flights/internal/answer"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: check input.parquet output-directory, or check -rows input.parquet")
		os.Exit(2)
	}
	run := check
	if os.Args[1] == "-rows" {
		run = rows
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

func check(input, dir string) error {
	want, err := answer.Loop(input)
	if err != nil {
		return err
	}
	out, err := answer.Read(dir)
	if err != nil {
		return err
	}
	if err := answer.Compare(out, want); err != nil {
		return err
	}
	fmt.Printf("exact: %d rows, the last pane of each of %d airports and hours equals a plain loop's; %d have more than one pane\n",
		out.Rows, len(want), out.Several)
	return nil
}

func rows(_, input string) error {
	all, err := answer.Loop(input)
	if err != nil {
		return err
	}
	n := int64(0)
	for _, d := range all {
		n += d.Flights
	}
	fmt.Println(n)
	return nil
}
