package jsonlio_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/jsonlio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
)

func TestPipelineThatIsRestoredCopiesEachLineOnce(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "new")
	var want []string
	var text strings.Builder
	for i := range 300 {
		want = append(want, fmt.Sprint(i))
		fmt.Fprintln(&text, i)
	}
	if err := os.WriteFile(filepath.Join(from, "in.jsonl"), []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	result, err := direct.Run(t.Context(), "copy", func(p *sdk.Pipeline) error {
		jsonlio.Write("write", jsonlio.Read[int]("read", p, from, jsonlio.SplitBytes(100)), to)
		return nil
	}, direct.Options{Parallelism: 3, RestoreEvery: 70})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(to, "*")) // also hidden ones: nothing staged is left
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.Fields(string(b))...)
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if result.Restores == 0 {
		t.Error("it was never restored")
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "jsonlio")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	type square struct {
		N      int `json:"n"`
		Square int `json:"square"`
	}
	build := func(p *sdk.Pipeline) error {
		numbers := sdk.Create("numbers", p, 1, 2, 3)
		squares := sdk.Map("square", numbers, func(n int) square { return square{n, n * n} })
		jsonlio.Write("write", squares, dir)
		return nil
	}
	if _, err := direct.Run(context.Background(), "squares", build, direct.Options{Parallelism: 1}); err != nil {
		fmt.Println(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "part-*.jsonl"))
	if err != nil {
		fmt.Println(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		fmt.Print(string(b))
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// {"n":1,"square":1}
	// {"n":2,"square":4}
	// {"n":3,"square":9}
}
