// Package connectortest says, as tests, what a source and a sink owe the runner.
//
//	func TestSource(t *testing.T) {
//		connectortest.Source(t, func() connector.Source[int, memio.Split] { return memio.Source(rows) }, rows)
//	}
//
//	func TestSink(t *testing.T) {
//		connectortest.Sink(t, func(t *testing.T) connectortest.Place[memio.Part[connectortest.Row]] {
//			var out memio.Collector[connectortest.Row]
//			return connectortest.Place[memio.Part[connectortest.Row]]{
//				Open: func() connector.Sink[connectortest.Row, memio.Part[connectortest.Row]] { return &out },
//				Rows: func() ([]connectortest.Row, error) { return out.Rows(), nil },
//			}
//		})
//	}
//
// The suites are tested themselves: against connectors that are broken on purpose, each of which must fail.
package connectortest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// An obligation is one sentence of a contract and a test of it by an E.
type obligation[E any] struct {
	name string
	says string
	test func(E) error
}

// safely runs f. A panic of the connector is its failure, also on a goroutine of the suite.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// run runs the obligations, one subtest for each. newEnv is called for each with a context that ends.
func run[E any](t *testing.T, obligations []obligation[E], newEnv func(t *testing.T, ctx context.Context, r *rand.Rand) E) {
	seed := seed(t)
	for _, o := range obligations {
		t.Run(o.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := safely(func() error { return o.test(newEnv(t, ctx, rand.New(rand.NewPCG(seed, 0)))) }); err != nil {
				t.Errorf("%v\nthe contract: %s\nrun again: CONNECTORTEST_SEED=%d go test -run '%s'", err, o.says, seed, t.Name())
			}
		})
	}
}

func seed(t *testing.T) uint64 {
	s := os.Getenv("CONNECTORTEST_SEED")
	if s == "" {
		return uint64(time.Now().UnixNano())
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("CONNECTORTEST_SEED: %v", err)
	}
	return n
}
