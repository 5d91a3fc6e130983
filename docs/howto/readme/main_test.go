package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millstream/millstream/io/memio"
	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/ptest"
)

func at(hour, minute int) time.Time { return time.Date(2026, 3, 1, hour, minute, 0, 0, time.UTC) }

func countHourly(clicks sdk.PCollection[Click]) sdk.PCollection[sdk.KV[string, int64]] {
	byPage := sdk.KeyBy("by page", clicks, func(c Click) string { return c.Page })
	return sdk.CombinePerKey("count", sdk.WindowInto("hourly", byPage, window.Fixed(time.Hour)), count{})
}

func TestClicksArePerHour(t *testing.T) {
	got := ptest.Collect(t, func(p *sdk.Pipeline) sdk.PCollection[sdk.KV[string, int64]] {
		clicks := memio.Read("clicks", p, []Click{{"/home", at(10, 0)}, {"/home", at(10, 59)}, {"/home", at(11, 0)}},
			sdk.EventTime(Click.At, watermark.Monotonic()))
		return countHourly(clicks)
	})
	// got is {"/home", 2} and {"/home", 1}, in any order
	if d := cmp.Diff([]sdk.KV[string, int64]{{Key: "/home", Value: 1}, {Key: "/home", Value: 2}}, got); d != "" {
		t.Error(d)
	}
}

func serve(ctx context.Context, server *http.Server) error {
	ctx, cancel := context.WithCancel(ctx)
	counted := make(chan error, 1)
	go func() {
		_, err := direct.Run(ctx, "clicks", build, direct.Options{CheckpointInterval: time.Second})
		counted <- err
	}()
	err := server.ListenAndServe() // until somebody calls Shutdown
	cancel()                       // the pipeline takes a last checkpoint and commits its output
	return errors.Join(err, <-counted)
}

func TestServiceEndsWithItsPipeline(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile(filepath.Join(dir, *in), []byte(`{"page":"/home","time":"2026-03-01T10:00:00Z"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:0", ReadHeaderTimeout: time.Second}
	ready := make(chan struct{})
	server.BaseContext = func(net.Listener) context.Context { close(ready); return t.Context() }
	ended := make(chan error, 1)
	go func() { ended <- serve(t.Context(), server) }()
	<-ready
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
