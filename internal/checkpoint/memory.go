package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/millstream/millstream/statebackend"
)

// MemoryStore is a Store in the memory of this process. The zero value is empty.
type MemoryStore struct {
	mu      sync.Mutex
	n       int
	objects map[string]memoryObject
}

type memoryObject struct {
	checkpoint int64 // that it was stored for
	data       []byte
}

// Put implements Store.
func (m *MemoryStore) Put(_ context.Context, checkpoint int64, name string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	data := make([]byte, size)
	if n, err := content.ReadAt(data, 0); err != nil && !(err == io.EOF && int64(n) == size) {
		return statebackend.Ref{}, fmt.Errorf("store %s: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = map[string]memoryObject{}
	}
	m.n++
	object := fmt.Sprintf("%d/%d-%s", checkpoint, m.n, name)
	m.objects[object] = memoryObject{checkpoint, data}
	return statebackend.Ref{Object: object, Size: size, CRC32C: statebackend.Checksum(0, data)}, nil
}

// Fetch implements Store.
func (m *MemoryStore) Fetch(_ context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[ref.Object]
	if !ok {
		return nil, fmt.Errorf("%s is not stored", ref.Object)
	}
	return io.NopCloser(bytes.NewReader(o.data)), nil
}

// Retain deletes every object that none of the checkpoints needs, except what was stored for a newer one.
func (m *MemoryStore) Retain(cs ...*Checkpoint) {
	needed := map[string]bool{}
	newest := int64(0)
	for _, c := range cs {
		newest = max(newest, c.ID)
		c.Refs(func(r statebackend.Ref) { needed[r.Object] = true })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, o := range m.objects {
		if !needed[name] && o.checkpoint <= newest {
			delete(m.objects, name)
		}
	}
}
