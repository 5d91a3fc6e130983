package kernel

import (
	"sync"

	"github.com/millstream/millstream/internal/eventtime"
)

// Clock is a processing time that test scripts move: it starts at 0, stands still otherwise, and never goes back while a job
// runs. It is the one thing in this package that goroutines share; operators see it as OpenContext.Now.
//
// A job that is restored goes back with its scripts: it runs from where the last of them has the clock in the checkpoint, and
// nothing is done before all have said so.
type Clock struct {
	// Movers are the full names of the steps whose scripts move the clock, fixed when the pipeline is built.
	Movers []string

	mu      sync.Mutex
	now     eventtime.Time
	waiting int // movers that have not said yet where they begin
	wakes   []func()
}

// Now is the processing time.
func (c *Clock) Now() eventtime.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Start begins anew: the clock is at 0 and does not run before Begin was called for each mover. From now on whoever waits for it
// is woken by wakes, which never wait, and nobody else.
func (c *Clock) Start(wakes []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.waiting, c.wakes = 0, len(c.Movers), wakes
}

// Runs says whether every mover has begun: before, the clock tells nothing.
func (c *Clock) Runs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting == 0
}

// Begin says that the script of one mover begins where it has the clock at t.
func (c *Clock) Begin(t eventtime.Time) { c.set(t, 1) }

// Set moves the clock to t, unless it is there or later, and wakes who waits.
func (c *Clock) Set(t eventtime.Time) { c.set(t, 0) }

func (c *Clock) set(t eventtime.Time, begun int) {
	c.mu.Lock()
	c.now = max(c.now, t)
	c.waiting -= begun
	wakes := c.wakes
	c.mu.Unlock()
	for _, w := range wakes {
		w()
	}
}
