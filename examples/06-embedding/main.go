// Command 06-embedding is a web service that counts its clicks with a pipeline inside.
//
// It teaches direct.Run: a pipeline as a function call, with a context, without flags and exit. POST /clicks
// appends to a log in memory, which is the source of the pipeline; GET /counts serves what the sink has committed.
// When the service is told to stop, the context ends, and Run returns after a last checkpoint. The source is
// all that a connector for a log of one's own needs.
//
//	$ go run ./examples/06-embedding --listen=127.0.0.1:8081 &
//	$ curl -d /home 127.0.0.1:8081/clicks; curl -d /home 127.0.0.1:8081/clicks; sleep 1; curl 127.0.0.1:8081/counts
//	{"/home":2}
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/connector"
	"github.com/millstream/millstream/sdk/trigger"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/transforms/stats"
)

// service has the log of clicks and the counts that are made of it.
type service struct {
	mu     sync.Mutex
	clicks []string
	counts memio.Collector[sdk.KV[string, int64]]
}

// run runs the pipeline until ctx ends.
func (s *service) run(ctx context.Context) error {
	_, err := direct.Run(ctx, "clicks", func(p *sdk.Pipeline) error {
		pages := sdk.Read("clicks", p, source{s})
		soFar := sdk.WindowInto("so far", pages, window.Global(), sdk.Accumulating,
			sdk.Trigger(trigger.AfterWatermark().Early(trigger.AfterCount(1))))
		memio.Write("collect", stats.Count("count", soFar), &s.counts)
		return nil
	}, direct.Options{CheckpointInterval: 100 * time.Millisecond})
	return err
}

// handler serves POST /clicks and GET /counts.
func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /clicks", func(w http.ResponseWriter, r *http.Request) {
		page, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<10))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.clicks = append(s.clicks, string(page))
	})
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		newest := map[string]int64{}
		for _, kv := range s.counts.Rows() { // in the order in which they were counted
			newest[kv.Key] = kv.Value
		}
		if err := json.NewEncoder(w).Encode(newest); err != nil {
			fmt.Fprintln(os.Stderr, "answer /counts:", err)
		}
	})
	return mux
}

// source reads the log. It has one split, whose state is the index of the next click.
type source struct{ s *service }

var (
	_ connector.Source[string, int64] = source{}
	_ connector.Unbounded             = source{}
)

func (source) Splits(context.Context) ([]int64, error) { return []int64{0}, nil }
func (source) SplitID(int64) string                    { return "log" }
func (source) Unbounded() bool                         { return true }
func (s source) Open(context.Context, connector.Subtask) (connector.Reader[string, int64], error) {
	return &reader{s: s.s}, nil
}

type reader struct {
	s        *service
	next     int64
	assigned bool // one subtask has the split
}

func (r *reader) Assign(splits []int64) error { r.next, r.assigned = splits[0], true; return nil }
func (r *reader) Close() error                { return nil }

// Read never waits: it says Idle if there is nothing new, and is asked again.
func (r *reader) Read(_ context.Context, most int) (b connector.Batch[string, int64], _ error) {
	if !r.assigned {
		b.Status = connector.End
		return b, nil
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	n := min(int64(most), int64(len(r.s.clicks))-r.next)
	b.Records = append(b.Records, r.s.clicks[r.next:r.next+n]...)
	r.next += n
	if b.Split = r.next; n == 0 {
		b.Status = connector.Idle
	}
	return b, nil
}

// serve runs the pipeline and the server until ctx ends or one of them fails.
func serve(ctx context.Context, listen string) error {
	s := &service{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{Addr: listen, Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 1)
	go func() {
		err := s.run(ctx)
		ended <- errors.Join(err, server.Close())
	}()
	err := server.ListenAndServe()
	cancel()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, <-ended)
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "`host:port` to listen on")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := serve(ctx, *listen); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
