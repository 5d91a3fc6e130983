package kernel

import (
	"sync"

	"github.com/millstream/millstream/internal/eventtime"
)

// Clock is a processing time that stands still until it is set, and never goes back: so that a test can script processing
// time. It is the one thing in this package that goroutines share; operators see it as OpenContext.Now.
type Clock struct {
	mu    sync.Mutex
	now   eventtime.Time
	wakes []func()
}

// Now is the time that was set last; at first 0.
func (c *Clock) Now() eventtime.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Set moves the clock to t, unless it is there or later, and wakes who waits.
func (c *Clock) Set(t eventtime.Time) {
	c.mu.Lock()
	c.now = max(c.now, t)
	wakes := c.wakes
	c.mu.Unlock()
	for _, w := range wakes {
		w()
	}
}

// Listen makes Set call wakes, which never wait, and nobody else any more.
func (c *Clock) Listen(wakes []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakes = wakes
}
