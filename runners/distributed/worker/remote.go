package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/millstream/millstream/runners/distributed/control"
	"github.com/millstream/millstream/statebackend"
)

// remoteStore is a checkpoint.Store in the coordinator's memory.
type remoteStore struct{ client control.ControlClient }

// Put implements checkpoint.Store.
func (r *remoteStore) Put(ctx context.Context, checkpoint int64, name string, content io.ReaderAt, size int64) (statebackend.Ref, error) {
	stream, err := r.client.Put(ctx)
	if err != nil {
		return statebackend.Ref{}, fmt.Errorf("store %s at the coordinator: %w", name, err)
	}
	c := &control.Chunk{Checkpoint: checkpoint, Name: name}
	for off := int64(0); off < size || c.Name != ""; {
		c.Data = make([]byte, min(size-off, control.ChunkBytes))
		if n, err := content.ReadAt(c.Data, off); n < len(c.Data) {
			return statebackend.Ref{}, fmt.Errorf("store %s at the coordinator: read what is to be stored: %w", name, err)
		}
		off += int64(len(c.Data))
		if err := stream.Send(c); err != nil && !errors.Is(err, io.EOF) { // io.EOF: CloseAndRecv says why
			return statebackend.Ref{}, fmt.Errorf("store %s at the coordinator: %w", name, err)
		}
		c = &control.Chunk{}
	}
	ref, err := stream.CloseAndRecv()
	if err != nil {
		return statebackend.Ref{}, fmt.Errorf("store %s at the coordinator: %w", name, err)
	}
	return statebackend.Ref{Object: ref.Object, Size: ref.Size, CRC32C: ref.Crc32C}, nil
}

// Fetch implements checkpoint.Store.
func (r *remoteStore) Fetch(ctx context.Context, ref statebackend.Ref) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := r.client.Fetch(ctx, &control.Ref{Object: ref.Object, Size: ref.Size, Crc32C: ref.CRC32C})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("fetch %s from the coordinator: %w", ref.Object, err)
	}
	return &chunkReader{object: ref.Object, stream: stream, cancel: cancel}, nil
}

type chunkReader struct {
	object string
	stream control.Control_FetchClient
	cancel func()
	rest   []byte
}

func (c *chunkReader) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		m, err := c.stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, fmt.Errorf("fetch %s from the coordinator: %w", c.object, err)
		}
		c.rest = m.Data
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *chunkReader) Close() error {
	c.cancel()
	return nil
}

// sharedListener is the data port, lent to one session after the other: its address stays the same.
type sharedListener struct {
	net.Listener
	accepted chan acceptance
	closed   chan struct{}
	loop     sync.WaitGroup
}

type acceptance struct {
	c   net.Conn
	err error
}

// share takes a listener over; close gives the port back.
func share(ln net.Listener) *sharedListener {
	l := &sharedListener{Listener: ln, accepted: make(chan acceptance), closed: make(chan struct{})}
	l.loop.Go(func() {
		for {
			c, err := ln.Accept()
			select {
			case l.accepted <- acceptance{c, err}:
			case <-l.closed:
				if err == nil {
					c.Close()
				}
				return
			}
		}
	})
	return l
}

func (l *sharedListener) close() error {
	close(l.closed)
	err := l.Listener.Close()
	l.loop.Wait()
	return err
}

// lend returns a listener whose Close leaves the port open.
func (l *sharedListener) lend() net.Listener {
	return &lentListener{from: l, closed: make(chan struct{})}
}

type lentListener struct {
	from   *sharedListener
	closed chan struct{}
	once   sync.Once
}

func (l *lentListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.from.accepted:
		return a.c, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *lentListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *lentListener) Addr() net.Addr { return l.from.Listener.Addr() }
