package backendtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/millstream/millstream/statebackend"
)

// naive is the simplest backend: a map, copied by a snapshot. A quirk is one deviation from it, broken or merely odd.
type naive struct{ quirk string }

func (d naive) Name() string { return "naive" }

func (d naive) Open(ctx context.Context, c statebackend.Config) (statebackend.Backend, error) {
	b := &naiveBackend{quirk: d.quirk, m: model{}, own: c.KeyGroups, dir: c.Dir, deleted: model{}}
	if d.quirk != "accepts any handle" {
		if err := c.CheckRestore(d.Name(), 1); err != nil {
			return nil, err
		}
	}
	if d.quirk == "keeps the directory" {
		b.readLeftovers()
	}
	for i, r := range c.Restore {
		if d.quirk == "restores the first handle only" && i > 0 {
			break
		}
		if err := b.restore(ctx, r); err != nil {
			return nil, err
		}
	}
	return b, nil
}

type naiveBackend struct {
	quirk   string
	m       model
	own     statebackend.KeyGroupRange
	dir     string
	deleted model                       // what deletes removed, for quirks
	pending []func()                    // of a write that is not atomic
	refs    map[string]statebackend.Ref // of own uploads, for a quirk
	aliased []byte                      // the memory of an earlier batch, for a quirk
	closed  bool
	mu      sync.Mutex // around m where a snapshot is live, so that it is wrong but no data race
}

func (b *naiveBackend) settle() {
	for _, do := range b.pending {
		do()
	}
	b.pending = nil
}

func (b *naiveBackend) Get(keys *statebackend.Keys, found func(int, []byte) error) error {
	b.settle()
	var scratch []byte
	for i := range keys.Len() {
		value, ok := b.m[string(keys.At(i))]
		switch {
		case !ok, b.quirk == "empty value is absent" && value == "":
			continue
		case b.quirk == "get finds a key once" && i > 0 && bytes.Equal(keys.At(i), keys.At(i-1)):
			continue
		case b.quirk == "get swallows the callback's error":
			_ = found(i, []byte(value))
			return nil
		case b.quirk == "get counts hits instead of positions":
			i = len(scratch)
			scratch = append(scratch, 0)
			if err := found(i, []byte(value)); err != nil {
				return err
			}
			continue
		}
		scratch = append(scratch[:0], value...)
		if err := found(i, scratch); err != nil {
			if b.quirk == "get wraps the callback's error" {
				return fmt.Errorf("get: %w", err)
			}
			return err
		}
		for j := range scratch { // legal: values are valid during the call only
			scratch[j] = '#'
		}
	}
	return nil
}

func (b *naiveBackend) Write(batch *statebackend.Batch) error {
	b.settle()
	if err := batch.Err(); err != nil && b.quirk != "writes up to the entry that is too long" {
		return err
	}
	var ops []func()
	n := 0
	err := batch.Each(func(op statebackend.Op, first, second []byte) error {
		n++
		key, value := string(first), string(second)
		switch op {
		case statebackend.OpPut:
			ops = append(ops, func() { b.m[key] = value })
			if b.quirk == "the first put of a batch wins" {
				seen := false
				for _, other := range b.aliased {
					seen = seen || len(key) == 1 && other == key[0]
				}
				if seen {
					ops = ops[:len(ops)-1]
				}
				if len(key) == 1 {
					b.aliased = append(b.aliased, key[0])
				}
			}
		case statebackend.OpDelete:
			ops = append(ops, func() { b.deleted[key] = b.m[key]; delete(b.m, key) })
		case statebackend.OpDeleteRange:
			ops = append(ops, func() { b.deleteRange(key, value) })
		}
		return nil
	})
	b.aliased = nil
	switch {
	case b.quirk == "write is not atomic to a snapshot" && len(ops) > 0:
		b.pending = ops[len(ops)-1:]
		ops = ops[:len(ops)-1]
	case b.quirk == "range deletes come last in a batch":
		var ranges []func()
		_ = batch.Each(func(op statebackend.Op, first, second []byte) error {
			if start, end := string(first), string(second); op == statebackend.OpDeleteRange {
				ranges = append(ranges, func() { b.deleteRange(start, end) })
			}
			return nil
		})
		ops = append(ops, ranges...)
	}
	b.mu.Lock()
	for _, do := range ops {
		do()
	}
	b.mu.Unlock()
	if b.quirk == "keeps the directory" {
		b.leave()
	}
	return errors.Join(err, batch.Err())
}

func (b *naiveBackend) deleteRange(start, end string) {
	maps.DeleteFunc(b.m, func(key, value string) bool {
		drop := start <= key && key < end
		switch b.quirk {
		case "delete range includes the end":
			drop = start <= key && key <= end
		case "delete range excludes the start":
			drop = start < key && key < end
		case "delete range does nothing":
			drop = false
		case "delete range matches a prefix of the start":
			drop = drop || strings.HasPrefix(key, start[:min(len(start), 6)]) && len(start) > 6
		}
		if drop {
			b.deleted[key] = value
		}
		return drop
	})
}

func (b *naiveBackend) Scan(r statebackend.Range, visit func(key, value []byte) (bool, error)) error {
	if b.quirk != "scan misses a pending write" {
		b.settle()
	}
	var keys []string
	for key := range b.m {
		in := r.Contains([]byte(key))
		switch b.quirk {
		case "scan includes the end":
			in = in || key == string(r.End) && !r.Empty()
		case "scan excludes the start":
			in = in && key != string(r.Start)
		}
		if in {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	switch {
	case b.quirk == "scan misses the last" && len(keys) > 0:
		keys = keys[:len(keys)-1]
	case b.quirk == "scan is descending":
		slices.Reverse(keys)
	case b.quirk == "scan orders by length first":
		sort.SliceStable(keys, func(i, j int) bool { return len(keys[i]) < len(keys[j]) })
	}
	for _, key := range keys {
		k, v := []byte(key), []byte(b.m[key])
		more, err := visit(k, v)
		for i := range k { // legal: keys and values are valid during the call only
			k[i] = '#'
		}
		for i := range v {
			v[i] = '#'
		}
		if err != nil && b.quirk != "scan swallows the callback's error" {
			return err
		}
		if !more && b.quirk != "scan does not stop" {
			break
		}
	}
	return nil
}

func (b *naiveBackend) Snapshot() (statebackend.Snapshot, error) {
	s := &naiveSnapshot{b: b, m: maps.Clone(b.m)}
	switch b.quirk {
	case "snapshot is live":
		s.m = nil // Persist takes what there is then
	case "snapshot keeps deleted entries":
		for key, value := range b.deleted {
			if _, ok := s.m[key]; !ok {
				s.m[key] = value
			}
		}
	}
	return s, nil
}

func (b *naiveBackend) Stats() statebackend.Stats { return statebackend.Stats{} }

func (b *naiveBackend) Close() error {
	b.closed = true
	return nil
}

// leave and readLeftovers are the local files of a quirk.
func (b *naiveBackend) leave() {
	_ = os.MkdirAll(b.dir, 0o755)
	_ = os.WriteFile(filepath.Join(b.dir, "left"), encode(b.m, slices.Sorted(maps.Keys(b.m))), 0o644)
}

func (b *naiveBackend) readLeftovers() {
	if content, err := os.ReadFile(filepath.Join(b.dir, "left")); err == nil {
		_ = decode(content, func(key, value string) error { b.m[key] = value; return nil })
	}
}

type naiveSnapshot struct {
	b     *naiveBackend
	m     model
	tried bool
}

func (s *naiveSnapshot) Persist(ctx context.Context, up statebackend.Uploader) (statebackend.Handle, error) {
	quirk := s.b.quirk
	h := statebackend.Handle{Driver: "naive", Version: 1, KeyGroups: s.b.own}
	if quirk == "snapshot dies with close" && s.b.closed {
		return h, errors.New("the backend is closed")
	}
	if quirk == "persist again forgets the rest" && s.tried {
		return h, nil
	}
	s.tried = true
	if quirk == "snapshot is live" {
		s.b.mu.Lock()
		s.m = maps.Clone(s.b.m)
		s.b.mu.Unlock()
	}
	keys := slices.Sorted(maps.Keys(s.m))
	chunk := max(1, len(keys))
	switch quirk {
	case "odd: many files in any order", "odd: shares files by content", "shares files by number", "refers to its own unfinished bases":
		chunk = 500
	}
	for part := range slices.Chunk(keys, chunk) {
		content := encode(s.m, part)
		f := statebackend.File{Name: fmt.Sprintf("%d.naive", len(h.Files))}
		switch quirk {
		case "odd: shares files by content", "refers to its own unfinished bases":
			f.ID = fmt.Sprintf("%x-%x", len(content), statebackend.Checksum(0, content))
		case "shares files by number":
			f.ID = f.Name
		}
		var known bool
		if f.Ref, known = up.Known(f.ID); !known {
			f.Ref, known = s.b.refs[f.ID]
		}
		if f.ID == "" || !known {
			var err error
			if f.Ref, err = up.Upload(ctx, f.Name, bytes.NewReader(content), int64(len(content))); err != nil {
				if quirk == "persist hides a failed upload" {
					continue
				}
				return h, fmt.Errorf("persist: %w", err)
			}
		}
		if quirk == "refers to its own unfinished bases" {
			if s.b.refs == nil {
				s.b.refs = map[string]statebackend.Ref{}
			}
			s.b.refs[f.ID] = f.Ref
		}
		h.Files = append(h.Files, f)
	}
	if quirk == "odd: many files in any order" {
		slices.Reverse(h.Files)
	}
	return h, nil
}

func (s *naiveSnapshot) Release() error {
	if s.b.quirk == "release empties the backend" {
		clear(s.b.m)
	}
	return nil
}

func (b *naiveBackend) restore(ctx context.Context, r statebackend.Restore) error {
	for _, f := range r.Handle.Files {
		if b.quirk == "ignores damaged files" {
			if body, err := r.Fetcher.Fetch(ctx, f.Ref); err == nil {
				content, _ := io.ReadAll(body)
				_ = decode(content, func(key, value string) error { b.m[key] = value; return nil })
			}
			continue
		}
		body, err := statebackend.OpenFile(ctx, r.Fetcher, f)
		if err != nil {
			return err
		}
		content, err := io.ReadAll(body)
		if err != nil {
			if b.quirk == "does not name the damaged file" {
				return errors.New("a file is damaged")
			}
			return err
		}
		err = decode(content, func(key, value string) error {
			g, ok := statebackend.KeyGroupOf([]byte(key))
			switch {
			case b.own.Covers(r.Handle.KeyGroups) || b.quirk == "restores all key groups":
			case b.quirk == "drops entries without key group" && !ok:
				return nil
			case b.quirk == "keeps entries without key group" && !ok:
			case b.quirk == "restores one key group too many" && g == b.own.End:
			case b.quirk == "restores one key group too few" && g == b.own.First:
				return nil
			case !ok:
				return fmt.Errorf("key %q has no key group", key)
			case !b.own.Contains(g):
				return nil
			}
			b.m[key] = value
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func encode(m model, keys []string) []byte {
	var b []byte
	for _, key := range keys {
		for _, s := range []string{key, m[key]} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return b
}

func decode(b []byte, visit func(key, value string) error) error {
	for len(b) > 0 {
		var kv [2]string
		for i := range kv {
			n, w := binary.Uvarint(b)
			if w <= 0 || n > uint64(len(b)-w) {
				return errors.New("malformed")
			}
			kv[i], b = string(b[w:w+int(n)]), b[w+int(n):]
		}
		if err := visit(kv[0], kv[1]); err != nil {
			return err
		}
	}
	return nil
}
