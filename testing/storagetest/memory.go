package storagetest

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/millstream/millstream/statebackend/storage"
)

// Memory is a bucket in memory: the reference implementation, and what tests of other packages store in.
// The zero value is an empty bucket.
type Memory struct {
	mu      sync.Mutex
	objects map[string][]byte // the slices are immutable
}

var _ storage.Bucket = (*Memory)(nil)

// Put implements [storage.Bucket].
func (m *Memory) Put(ctx context.Context, ref storage.Ref, body io.ReaderAt) error {
	b := make([]byte, ref.Size)
	if n, err := body.ReadAt(b, 0); n < len(b) {
		return err
	}
	if crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) != ref.CRC32C {
		return storage.Permanent(errors.New("what was to be stored changed while it was stored"))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.set(ref.Name, b)
	return nil
}

// Create implements [storage.Bucket].
func (m *Memory) Create(ctx context.Context, name string, body []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[name]; ok {
		return storage.ErrExist
	}
	m.setLocked(name, bytes.Clone(body))
	return nil
}

// Get implements [storage.Bucket].
func (m *Memory) Get(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[name]
	if !ok {
		return nil, storage.ErrNotExist
	}
	if length < 0 {
		length = int64(len(b))
	}
	return io.NopCloser(io.NewSectionReader(bytes.NewReader(b), offset, length)), nil
}

// List implements [storage.Bucket].
func (m *Memory) List(ctx context.Context, prefix, startAfter string, limit int) ([]string, bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(m.objects)) {
		if name > startAfter && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	if len(names) > limit {
		return names[:limit], true, nil
	}
	return names, false, nil
}

// Delete implements [storage.Bucket].
func (m *Memory) Delete(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	return nil
}

func (m *Memory) set(name string, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setLocked(name, body)
}

func (m *Memory) setLocked(name string, body []byte) {
	if m.objects == nil {
		m.objects = map[string][]byte{}
	}
	m.objects[name] = body
}
