package ptest

import (
	"context"
	"time"

	"github.com/millstream/millstream/internal/kernel"
)

// Sleep is for functions of sdk.MapAsync under test: it waits for d of the virtual clock, or until ctx, the context of the call, is
// done, and returns the error of ctx.
func Sleep(ctx context.Context, d time.Duration) error { return kernel.Sleep(ctx, d) }
