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

	"github.com/millstream/millstream/runners/direct"
)

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
