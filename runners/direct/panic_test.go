package direct_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
)

// panics is a source and a sink of numbers, one of whose methods panics.
type panics struct {
	in    string
	exits bool // it ends its goroutine instead
}

func (p panics) call(method string) {
	switch {
	case p.in != method:
	case p.exits:
		runtime.Goexit()
	default:
		panic("in " + method)
	}
}

func (p panics) Splits(context.Context) ([]int64, error) { p.call("Splits"); return []int64{0}, nil }
func (p panics) SplitID(int64) string                    { p.call("SplitID"); return "all" }
func (p panics) Open(context.Context, connector.Subtask) (connector.Reader[int64, int64], error) {
	p.call("Source.Open")
	return panicking{p}, nil
}

type panicking struct{ panics }

func (p panicking) Assign([]int64) error { p.call("Assign"); return nil }
func (p panicking) Close() error         { p.call("Close"); return nil }
func (p panicking) Read(context.Context, int) (connector.Batch[int64, int64], error) {
	p.call("Read")
	return connector.Batch[int64, int64]{Records: []int64{1}, Split: 1, Status: connector.End}, nil
}

type panickingSink struct{ panics }

func (p panickingSink) Start(context.Context, bool) error { p.call("Start"); return nil }
func (p panickingSink) Open(context.Context, connector.Subtask) (connector.Writer[int64, int64], error) {
	p.call("Sink.Open")
	return panickingWriter(p), nil
}
func (p panickingSink) Commit(context.Context, int64, []int64) error { p.call("Commit"); return nil }

type panickingWriter struct{ panics }

func (p panickingWriter) Close() error { p.call("Close of the writer"); return nil }
func (p panickingWriter) Write(context.Context, []connector.Record[int64]) error {
	p.call("Write")
	return nil
}
func (p panickingWriter) Prepare(context.Context, int64) ([]int64, error) {
	p.call("Prepare")
	return []int64{1}, nil
}

// A panic in a connector, or the end of its goroutine, is an error of its step, wherever it is called: not the end of the program that the job runs in.
func TestPanicOfAConnectorIsAnErrorOfItsStep(t *testing.T) {
	for step, methods := range map[string][]string{
		"in":  {"Splits", "SplitID", "Source.Open", "Assign", "Read", "Close"},
		"out": {"Start", "Sink.Open", "Write", "Prepare", "Commit", "Close of the writer"},
	} {
		for _, method := range methods {
			t.Run(method, func(t *testing.T) {
				for exits, want := range map[bool]string{false: "panic: in " + method + "\n", true: kernel.ErrExited.Error()} {
					_, err := direct.Run(t.Context(), "panics", func(p *sdk.Pipeline) error {
						f := panics{method, exits}
						sdk.Write("out", sdk.Read("in", p, f), panickingSink{f})
						return nil
					}, direct.Options{Parallelism: 1})
					if err == nil || !strings.Contains(err.Error(), `step "`+step+`": `) || !strings.Contains(err.Error(), want) {
						t.Errorf("error %v, want one of step %q with %q", err, step, want)
					}
				}
			})
		}
	}
}

func TestWritingToNoCollectorIsAnError(t *testing.T) {
	_, err := direct.Run(t.Context(), "nil", func(p *sdk.Pipeline) error {
		memio.Write("out", sdk.Create("in", p, 1), nil)
		return nil
	}, direct.Options{})
	if err == nil || !strings.Contains(err.Error(), `step "out"`) {
		t.Errorf("error %v, want one of step \"out\"", err)
	}
}
