package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestServiceCountsClicks(t *testing.T) {
	s := &service{}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.run(ctx) }()
	web := httptest.NewServer(s.handler())
	defer web.Close()
	for _, page := range []string{"/home", "/cart", "/home"} {
		r, err := http.Post(web.URL+"/clicks", "text/plain", strings.NewReader(page))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	const want = `{"/cart":1,"/home":2}` + "\n"
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for got := ""; got != want; <-tick.C {
		r, err := http.Get(web.URL + "/counts")
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if got = string(b); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			t.Fatalf("the pipeline ended: %v", err)
		default:
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
