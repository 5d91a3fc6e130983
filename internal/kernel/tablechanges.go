package kernel

import "github.com/millstream/millstream/statebackend"

// changes is a statebackend.Batch in pieces. A buffer of megabytes that grows copies itself at once, while no record
// goes on; so a piece that is full is left alone. What is more than an eighth of the table's cache lies in a file, if the backend has
// room for one: until a checkpoint is stored, its changes may be as many as the state.
type changes struct {
	full    statebackend.Pieces
	last    statebackend.Batch
	cache   *int64               // bytes
	scratch statebackend.Scratch // or nil
	err     error
}

func newChanges(b statebackend.Backend, cache *int64) changes {
	s, _ := b.(statebackend.Scratch)
	return changes{cache: cache, scratch: s}
}

const pieceBytes = 256 << 10

func (c *changes) Put(key, value []byte) {
	c.room()
	c.last.Put(key, value)
}

func (c *changes) Delete(key []byte) {
	c.room()
	c.last.Delete(key)
}

func (c *changes) DeleteRange(r statebackend.Range) {
	c.room()
	c.last.DeleteRange(r)
}

// room begins a new piece if the last is full. One that failed is kept, for its error.
func (c *changes) room() {
	if c.last.Size() < pieceBytes || c.Err() != nil {
		return
	}
	if c.scratch != nil && c.full.Size() >= *c.cache/8 {
		if c.err = c.full.Write(c.scratch, c.last.Bytes()); c.err == nil {
			c.last.Reset()
		}
		return
	}
	c.full.Add(c.last.Bytes())
	c.last = statebackend.Batch{}
	c.last.Grow(pieceBytes + pieceBytes/16)
}

// Err returns the first operation's error: see statebackend.Batch.
func (c *changes) Err() error {
	if c.err != nil {
		return c.err
	}
	return c.last.Err()
}

// finish returns the encoding of the operations. There are no more.
func (c *changes) finish() *statebackend.Pieces {
	c.full.Add(c.last.Bytes())
	c.last = statebackend.Batch{}
	return &c.full
}
