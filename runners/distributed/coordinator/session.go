package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/millstream/millstream/internal/checkpoint"
	"github.com/millstream/millstream/runners/distributed/control"
	"github.com/millstream/millstream/statebackend"
)

// String is the name that other workers know a worker by.
func (w WorkerID) String() string { return fmt.Sprintf("worker-%06d", int64(w)) }

// session is a worker that has joined.
type session struct {
	id      WorkerID
	address string // of its data port
	process string
	out     chan *control.ToWorker
	metrics *control.Heartbeat // newest; the server's lock guards it

	dropOnce sync.Once
	dropped  chan error
}

// outbox is the number of messages that a worker may be behind.
const outbox = 256

func (s *session) drop(err error) {
	s.dropOnce.Do(func() { s.dropped <- err })
}

// handshakeTimeout bounds the time from Hello to Proof, in which a worker builds the pipeline.
const handshakeTimeout = time.Minute

// Join implements control.ControlServer.
func (s *Server) Join(stream control.Control_JoinServer) error {
	ses, err := s.handshake(stream)
	if err != nil || ses == nil {
		return err
	}
	s.mu.Lock()
	s.sessions[ses.id] = ses
	s.joined++
	s.mu.Unlock()
	ses.out <- &control.ToWorker{Message: &control.ToWorker_Accepted{Accepted: &control.Accepted{}}}
	s.tell(Joined{ses.id})

	received := make(chan error, 1)
	go func() { received <- s.receive(stream, ses) }() // ends when the stream does, which is when we return
	err = s.serve(stream, ses, received)
	s.mu.Lock()
	delete(s.sessions, ses.id)
	s.mu.Unlock()
	reason := "it was dismissed"
	if err != nil {
		reason = control.Plain(err).Error()
	}
	s.tell(Left{ses.id, reason})
	return err
}

// handshake returns nil without an error for a worker that was refused.
func (s *Server) handshake(stream control.Control_JoinServer) (*session, error) {
	m, err := recvWithin(stream, handshakeTimeout)
	if err != nil {
		return nil, err
	}
	hello := m.GetHello()
	if hello == nil {
		return nil, status.Error(codes.InvalidArgument, "the first message must be a hello")
	}
	refuse := func(reason string) error {
		s.logger.Error("worker refused", "process", hello.Process, "reason", reason)
		return stream.Send(control.Sendable(&control.ToWorker{Message: &control.ToWorker_Dismiss{Dismiss: &control.Dismiss{Reason: reason, Done: true, Failed: true}}}))
	}
	if hello.Protocol != control.Version {
		return nil, refuse(fmt.Sprintf("the worker speaks version %d of the control protocol (%s), the coordinator version %d: start both from the same program", hello.Protocol, hello.Version, control.Version))
	}
	s.mu.Lock()
	s.nextID++
	id := s.nextID
	s.mu.Unlock()
	if err := stream.Send(&control.ToWorker{Message: &control.ToWorker_Welcome{Welcome: &control.Welcome{
		Job: s.o.Name, Worker: id.String(), Generation: s.o.Generation, Args: s.o.Args, Env: s.o.Env, Settings: s.o.Settings,
	}}}); err != nil {
		return nil, err
	}
	if m, err = recvWithin(stream, handshakeTimeout); err != nil {
		return nil, err
	}
	proof := m.GetProof()
	if proof == nil {
		return nil, status.Error(codes.InvalidArgument, "the second message must be a proof")
	}
	if reason := s.o.Identity.differs(proof); reason != "" {
		return nil, refuse(reason)
	}
	address, err := reachable(hello.DataAddress, stream.Context())
	if err != nil {
		return nil, refuse(err.Error())
	}
	return &session{
		id: id, address: address, process: hello.Process,
		out: make(chan *control.ToWorker, outbox), dropped: make(chan error, 1),
	}, nil
}

// recvWithin receives a message. A stream that brings none in time ends with the error of the method.
func recvWithin(stream control.Control_JoinServer, d time.Duration) (*control.FromWorker, error) {
	type result struct {
		m   *control.FromWorker
		err error
	}
	c := make(chan result, 1)
	go func() {
		m, err := stream.Recv()
		c <- result{m, err}
	}()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case r := <-c:
		return r.m, r.err
	case <-t.C:
		return nil, status.Error(codes.DeadlineExceeded, "the worker took too long to introduce itself")
	}
}

// differs names what a worker does not have in common with the coordinator, or returns "".
func (id Identity) differs(p *control.Proof) string {
	switch {
	case p.Error != "":
		return fmt.Sprintf("the worker cannot build the pipeline from the coordinator's arguments: %s", p.Error)
	case p.Executable != id.Executable:
		return fmt.Sprintf("the worker runs another executable: SHA-256 %.16s…, the coordinator's %.16s…: start both from the same file", p.Executable, id.Executable)
	case p.Flags != id.Flags:
		return "the program's own flags differ: " + firstDifference("the worker has", p.Flags, "the coordinator", id.Flags) + ": their values may depend on nothing but the arguments"
	case p.Plan != id.Plan:
		return "build gives another plan: " + firstDifference("the worker has", p.Plan, "the coordinator", id.Plan) + ": it may depend on nothing but the arguments"
	}
	return ""
}

// reachable completes the address of a worker's data port with the host that the worker came from.
func reachable(address string, ctx context.Context) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("the worker's data address is %q: %w", address, err)
	}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return address, nil
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return "", errors.New("the worker's host is not known")
	}
	if host, _, err = net.SplitHostPort(p.Addr.String()); err != nil {
		return "", fmt.Errorf("the worker comes from %v: %w", p.Addr, err)
	}
	return net.JoinHostPort(host, port), nil
}

// serve sends what is in the outbox until the worker is dismissed, dropped, or gone.
func (s *Server) serve(stream control.Control_JoinServer, ses *session, received chan error) error {
	for {
		select {
		case m := <-ses.out:
			if err := stream.Send(control.Sendable(m)); err != nil {
				return err
			}
			if m.GetDismiss() != nil {
				return nil
			}
		case err := <-received:
			if errors.Is(err, io.EOF) {
				err = errors.New("it said goodbye")
			}
			return err
		case err := <-ses.dropped:
			return err
		}
	}
}

// receive turns a worker's messages into events.
func (s *Server) receive(stream control.Control_JoinServer, ses *session) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		switch m := m.Message.(type) {
		case *control.FromWorker_Heartbeat:
			s.mu.Lock()
			ses.metrics = m.Heartbeat
			s.mu.Unlock()
			s.tell(Heard{ses.id, m.Heartbeat.Attempt, s.counts(m.Heartbeat)})
		case *control.FromWorker_Deployed:
			s.tell(Deployed{ses.id, m.Deployed.Attempt})
		case *control.FromWorker_Ack:
			p, err := checkpoint.DecodePart(m.Ack.Part)
			if err != nil {
				return err
			}
			s.tell(Acked{ses.id, m.Ack.Attempt, p})
		case *control.FromWorker_Ended:
			s.tell(EndReached{ses.id, m.Ended.Attempt, Subtask{m.Ended.Stage, int(m.Ended.Subtask)}})
		case *control.FromWorker_Failed:
			f := m.Failed
			s.tell(StepFailed{ses.id, f.Attempt, f.Step, int(f.Subtask), f.Records, errors.New(f.Error), f.Lost, f.Permanent})
		default:
			return fmt.Errorf("a message of type %T has no place here", m)
		}
	}
}

// counts says how far each step has come: what it took, or gave if it is a source.
func (s *Server) counts(h *control.Heartbeat) (all []Count) {
	for _, m := range h.Steps {
		n := m.RecordsIn
		if node := s.nodes[m.Step]; node != nil && len(node.Inputs) == 0 {
			n = m.RecordsOut
		}
		all = append(all, Count{m.Step, int(m.Subtask), n})
	}
	return all
}

// maxObject bounds an object in the coordinator's memory, in bytes.
const maxObject = 1 << 30

// Put implements control.ControlServer.
func (s *Server) Put(stream control.Control_PutServer) error {
	if s.o.Bulk == nil {
		return status.Error(codes.FailedPrecondition, "this job keeps its checkpoints in storage")
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	data := first.Data
	for {
		c, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(data)+len(c.Data) > maxObject {
			return status.Errorf(codes.ResourceExhausted, "%s has more than %d bytes: use --checkpoint-dir", first.Name, maxObject)
		}
		data = append(data, c.Data...)
	}
	ref, err := s.o.Bulk.Put(stream.Context(), first.Checkpoint, first.Name, bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	return stream.SendAndClose(&control.Ref{Object: ref.Object, Size: ref.Size, Crc32C: ref.CRC32C})
}

// Fetch implements control.ControlServer.
func (s *Server) Fetch(ref *control.Ref, stream control.Control_FetchServer) error {
	if s.o.Bulk == nil {
		return status.Error(codes.FailedPrecondition, "this job keeps its checkpoints in storage")
	}
	r, err := s.o.Bulk.Fetch(stream.Context(), statebackend.Ref{Object: ref.Object, Size: ref.Size, CRC32C: ref.Crc32C})
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	defer r.Close()
	for {
		buf := make([]byte, control.ChunkBytes)
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := stream.Send(&control.Chunk{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
