package kernel

import "github.com/millstream/millstream/statebackend"

// changes is a statebackend.Batch in pieces. A buffer of megabytes that grows copies itself at once, while no record
// goes on; so a piece that is full is left alone.
type changes struct {
	full [][]byte
	last statebackend.Batch
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
	if c.last.Size() < pieceBytes || c.last.Err() != nil {
		return
	}
	c.full = append(c.full, c.last.Bytes())
	c.last = statebackend.Batch{}
	c.last.Grow(pieceBytes + pieceBytes/16)
}

// Err returns the first operation's error: see statebackend.Batch.
func (c *changes) Err() error { return c.last.Err() }

// Pieces is the encoding of the operations. It belongs to c.
func (c *changes) Pieces() statebackend.Pieces {
	p := make(statebackend.Pieces, 0, len(c.full)+1)
	p = append(p, c.full...)
	if c.last.Size() > 0 {
		p = append(p, c.last.Bytes())
	}
	return p
}
