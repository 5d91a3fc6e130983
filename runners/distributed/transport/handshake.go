package transport

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Run is one attempt of one coordinator to run the job. Frames of different runs never meet: a connection
// belongs to one.
type Run struct {
	Generation uint64 // of the coordinator
	Attempt    uint64
}

func (r Run) before(o Run) bool {
	return r.Generation < o.Generation || r.Generation == o.Generation && r.Attempt < o.Attempt
}

func (r Run) String() string { return fmt.Sprintf("attempt %d.%d", r.Generation, r.Attempt) }

const (
	magic        = "MSDF"
	version      = 1
	nonceSize    = 32
	maxHandshake = 4096 // greatest length of a frame before both sides have proven who they are
	maxRoom      = 1 << 20
)

// hello is what a dialer says first.
type hello struct {
	nonce         [nonceSize]byte
	run           Run
	room          uint32
	job, from, to string
}

// refusal is the answer to a handshake that fails.
type refusal struct {
	reason string
	again  bool // it may work later
}

func (r *refusal) Error() string { return r.reason }

func (h hello) append(dst []byte) []byte {
	dst = append(append(append(dst, magic...), version), h.nonce[:]...)
	dst = binary.BigEndian.AppendUint64(dst, h.run.Generation)
	dst = binary.BigEndian.AppendUint64(dst, h.run.Attempt)
	dst = binary.BigEndian.AppendUint32(dst, h.room)
	for _, s := range []string{h.job, h.from, h.to} {
		dst = append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
	}
	return dst
}

var errNotPeer = errors.New("it does not speak the protocol of workers")

func parseHello(b []byte) (h hello, err error) {
	const fixed = len(magic) + 1 + nonceSize + 8 + 8 + 4
	if len(b) <= len(magic) || string(b[:len(magic)]) != magic {
		return h, errNotPeer
	}
	if v := b[len(magic)]; v != version {
		return h, &refusal{reason: fmt.Sprintf("version %d of the protocol meets version %d: run the same release everywhere", v, version)}
	}
	if len(b) < fixed {
		return h, errNotPeer
	}
	b = b[len(magic)+1:]
	b = b[copy(h.nonce[:], b):]
	h.run = Run{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
	h.room = binary.BigEndian.Uint32(b[16:])
	b = b[20:]
	for _, s := range []*string{&h.job, &h.from, &h.to} {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return h, errNotPeer
		}
		n := 2 + int(binary.BigEndian.Uint16(b))
		*s, b = string(b[2:n]), b[n:]
	}
	if len(b) > 0 || h.room < 1 || h.room > maxRoom {
		return h, errNotPeer
	}
	return h, nil
}

// proof shows that a side knows the token, to the other alone and this once.
func proof(token []byte, side string, hello, challenge []byte) []byte {
	m := hmac.New(sha256.New, token)
	io.WriteString(m, side) // a hash takes everything
	m.Write(hello)
	m.Write(challenge)
	return m.Sum(nil)
}

// dialHandshake is the dialer's side. It returns the room of the acceptor.
func dialHandshake(c net.Conn, r *frameReader, o Options, run Run, to string) (room int, err error) {
	h := hello{run: run, room: uint32(o.Room), job: o.Job, from: o.Name, to: to}
	rand.Read(h.nonce[:]) // never fails
	said := h.append(nil)
	if err := send(c, frameHello, said); err != nil {
		return 0, err
	}
	challenge, err := expect(r, frameChallenge, nonceSize+4+sha256.Size)
	if err != nil {
		return 0, err
	}
	asked := append([]byte(nil), challenge[:nonceSize+4]...)
	if !hmac.Equal(challenge[nonceSize+4:], proof(o.Token, "acceptor", said, asked)) {
		return 0, &refusal{reason: "it has another token: give all workers the same token file"}
	}
	n := binary.BigEndian.Uint32(asked[nonceSize:])
	if n < 1 || n > maxRoom {
		return 0, errNotPeer
	}
	if err := send(c, frameProof, proof(o.Token, "dialer", said, asked)); err != nil {
		return 0, err
	}
	_, err = expect(r, frameWelcome, 0)
	return int(n), err
}

// acceptHandshake is the acceptor's side, up to the proof: whether the run fits is the caller's to say.
func acceptHandshake(c net.Conn, r *frameReader, o Options) (hello, error) {
	said, err := expect(r, frameHello, -1)
	if err != nil {
		return hello{}, err
	}
	said = append([]byte(nil), said...)
	h, err := parseHello(said)
	if err == nil && (h.job != o.Job || h.to != o.Name) {
		err = &refusal{reason: fmt.Sprintf("worker %q of job %q was taken for worker %q of job %q", o.Name, o.Job, h.to, h.job)}
	}
	if err != nil {
		return h, errors.Join(err, refuse(c, err))
	}
	asked := make([]byte, nonceSize, nonceSize+4)
	rand.Read(asked) // never fails
	asked = binary.BigEndian.AppendUint32(asked, uint32(o.Room))
	challenge := append(append([]byte(nil), asked...), proof(o.Token, "acceptor", said, asked)...)
	if err := send(c, frameChallenge, challenge); err != nil {
		return h, err
	}
	got, err := expect(r, frameProof, sha256.Size)
	if err != nil {
		return h, err
	}
	if !hmac.Equal(got, proof(o.Token, "dialer", said, asked)) {
		err := &refusal{reason: "wrong token: give all workers the same token file"}
		return h, errors.Join(err, refuse(c, err))
	}
	return h, nil
}

// send writes one frame of the handshake.
func send(c net.Conn, t frameType, body []byte) error {
	f := newFrame(t)
	defer f.recycle()
	f.b = append(f.b, body...)
	_, err := c.Write(f.seal().b)
	return err
}

// expect reads a frame of type t with so many bytes of body; -1: any number.
func expect(r *frameReader, t frameType, size int) ([]byte, error) {
	got, body, err := r.next()
	switch {
	case err != nil:
		return nil, err
	case got == frameRefused && len(body) > 0:
		return nil, &refusal{reason: string(body[1:]), again: body[0] == 1}
	case got != t || size >= 0 && len(body) != size:
		return nil, errNotPeer
	}
	return body, nil
}

// refuse tells the other side why, if that is for it to know.
func refuse(c net.Conn, why error) error {
	var r *refusal
	if !errors.As(why, &r) {
		return nil
	}
	again := byte(0)
	if r.again {
		again = 1
	}
	return send(c, frameRefused, append([]byte{again}, r.reason...))
}
