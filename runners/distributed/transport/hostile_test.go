package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// dialB opens a connection to b that the test speaks on by hand.
func (r *rig) dialB() net.Conn {
	r.t.Helper()
	c, err := r.b.ln.(*pipeListener).dial(context.Background(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

func TestAnEndpointHangsUpOnWhatIsNoPeer(t *testing.T) {
	good := hello{run: runOne, room: 8, job: "test", from: "a", to: "b"}
	other := good
	other.job = "other"
	misled := good
	misled.to = "c"
	newVersion := good.append(nil)
	newVersion[4] = 2
	noRoom := good
	noRoom.room = 0
	for name, test := range map[string]struct {
		say  []byte
		want string // in the answer, if there is one
	}{
		"another protocol":       {[]byte("GET / HTTP/1.1\r\nHost: b\r\n\r\n"), ""},
		"huge frame":             {[]byte{0xff, 0xff, 0xff, 0xff, 1}, ""},
		"frame beyond handshake": {binary.BigEndian.AppendUint32(nil, maxHandshake+1), ""},
		"empty frame":            {make([]byte, 8), ""},
		"items before hello":     {encodeFrame(frameItems, []byte("\x00\x00\x00\x00e")), ""},
		"garbage in hello":       {encodeFrame(frameHello, bytes.Repeat([]byte{7}, 100)), ""},
		"hello cut off":          {encodeFrame(frameHello, good.append(nil)[:60]), ""},
		"hello too long":         {encodeFrame(frameHello, append(good.append(nil), 0)), ""},
		"no room":                {encodeFrame(frameHello, noRoom.append(nil)), ""},
		"newer version":          {encodeFrame(frameHello, newVersion), "version 2 of the protocol meets version 1: run the same release everywhere"},
		"another job":            {encodeFrame(frameHello, other.append(nil)), `worker "b" of job "test" was taken for worker "b" of job "other"`},
		"another worker":         {encodeFrame(frameHello, misled.append(nil)), `was taken for worker "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{Token: []byte("secret")})
			c := r.dialB()
			go func() { _, _ = c.Write(test.say) }() // it may be cut off in the middle, which is fine
			answer, _ := io.ReadAll(c)               // a pipe that was closed is all that is to be seen
			if test.want == "" && len(answer) > 0 || !bytes.Contains(answer, []byte(test.want)) {
				t.Errorf("answered %q, want %q", answer, test.want)
			}
			// And it still takes its peers.
			errA, errB := r.connect()
			if err := errors.Join(errA, errB); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestProofOfAnotherTokenIsRefused(t *testing.T) {
	r := newRig(t, Options{Token: []byte("secret")})
	// The dialer finds out first, for the acceptor proves itself before it.
	o := r.a.o
	o.Token = []byte("guess")
	c := r.dialB()
	_, err := dialHandshake(c, newFrameReader(c, maxHandshake), o, runOne, "b")
	if err == nil || !strings.Contains(err.Error(), "another token") {
		t.Errorf("a dialer with another token: %v", err)
	}
	// One that goes on is told, and gets nowhere.
	c = r.dialB()
	said := hello{run: runOne, room: 8, job: "test", from: "a", to: "b"}.append(nil)
	fr := newFrameReader(c, maxHandshake)
	if err := send(c, frameHello, said); err != nil {
		t.Fatal(err)
	}
	challenge, err := expect(fr, frameChallenge, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := send(c, frameProof, proof(o.Token, "dialer", said, challenge[:nonceSize+4])); err != nil {
		t.Fatal(err)
	}
	if _, err := expect(fr, frameWelcome, 0); err == nil || err.Error() != "wrong token: give all workers the same token file" {
		t.Errorf("a wrong proof: %v", err)
	}
	// What the acceptor has proven is of no use as a proof of the dialer.
	c = r.dialB()
	fr = newFrameReader(c, maxHandshake)
	if err := send(c, frameHello, said); err != nil {
		t.Fatal(err)
	}
	if challenge, err = expect(fr, frameChallenge, -1); err != nil {
		t.Fatal(err)
	}
	if err := send(c, frameProof, bytes.Clone(challenge[nonceSize+4:])); err != nil {
		t.Fatal(err)
	}
	if _, err := expect(fr, frameWelcome, 0); err == nil {
		t.Error("the acceptor's own proof was accepted")
	}
}

func TestConnectSaysWhyAPeerWillNotCome(t *testing.T) {
	t.Run("token", func(t *testing.T) {
		r := newRig(t, Options{Token: []byte("secret")})
		r.a.o.Token = []byte("another")
		errA, _ := r.connect()
		if errA == nil || !strings.Contains(errA.Error(), `connect worker "a": worker "b" at pipe: it has another token`) {
			t.Error(errA)
		}
	})
	t.Run("old attempt", func(t *testing.T) {
		r := newRig(t, Options{})
		r.meshA.run = Run{Generation: 1, Attempt: 0}
		errA, _ := r.connect()
		if errA == nil || !strings.Contains(errA.Error(), `worker "b" has left attempt 1.0 for attempt 1.1`) {
			t.Error(errA)
		}
	})
	t.Run("no address", func(t *testing.T) {
		r := newRig(t, Options{})
		err := r.meshA.Connect(context.Background(), r.jobA, nil)
		if err == nil || !strings.Contains(err.Error(), `worker "b" has no address`) {
			t.Error(err)
		}
	})
	t.Run("nobody there", func(t *testing.T) {
		r := newRig(t, Options{})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := r.meshB.Connect(ctx, r.jobB, addresses); err == nil || !strings.Contains(err.Error(), `worker "a" has not come`) {
			t.Error(err)
		}
	})
}

// The workers of a job hear of a new attempt at different times.
func TestDialerWaitsForAPeerThatIsStillAtAnOlderAttempt(t *testing.T) {
	r := newRig(t, Options{})
	r.meshA.run, r.meshB.run = Run{Generation: 2, Attempt: 1}, Run{Generation: 2, Attempt: 1}
	old := r.b.NewMesh(runOne, workers)
	if err := r.b.begin(old); err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := r.b.admit(hello{run: r.meshA.run, from: "a"})
		refused <- err
	}()
	var again *refusal
	if err := <-refused; !errors.As(err, &again) || !again.again {
		t.Fatalf("a peer that is ahead: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.meshA.Connect(ctx, r.jobA, addresses) }()
	if err := r.meshB.Connect(ctx, r.jobB, addresses); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := r.b.begin(old); err == nil {
		t.Error("an older attempt began after a newer one")
	}
}

func TestPeerThatBreaksTheProtocolFailsTheJob(t *testing.T) {
	channel := func(items string) []byte { return append([]byte{0, 0, 0, 0}, items...) }
	for name, test := range map[string]struct {
		say  []byte
		want string
	}{
		"channel of nobody":   {encodeFrame(frameItems, []byte("\x00\x00\x01\x00e")), "channel 256 does not come from there"},
		"no channel":          {encodeFrame(frameItems, []byte("\x00")), "a frame of items is cut off"},
		"unknown item":        {encodeFrame(frameItems, channel("?")), `decode an item for collect/0: unknown item 0x3f`},
		"batch too long":      {encodeFrame(frameItems, channel("b\xff\x01")), "batch of 255 bytes exceeds what is left"},
		"rows of nothing":     {encodeFrame(frameItems, channel("b\x05\xff\xff\xff\xff\x0f")), "4294967295 rows in 5 bytes"},
		"barrier of nothing":  {encodeFrame(frameItems, channel("c\x00")), "barrier is malformed"},
		"credits of nobody":   {encodeFrame(frameCredit, []byte{0, 0, 0, 0, 0, 0, 0, 1}), "credits for channel 0, which does not go there"},
		"malformed credits":   {encodeFrame(frameCredit, make([]byte, 7)), "a frame of credits is malformed"},
		"hello after welcome": {encodeFrame(frameHello, nil), "unknown frame of type 1"},
		"huge frame":          {[]byte{0xff, 0xff, 0xff, 0xff, 1}, "allowed are 1 to 67108864"},
		"cut":                 {encodeFrame(frameItems, channel("e"))[:6], "unexpected EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{})
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- r.meshB.Connect(ctx, r.jobB, addresses) }()
			c := r.handshakeAsA(ctx)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = c.Write(test.say) // b may hang up in the middle
				c.Close()
			}()
			r.meshB.running.Wait()
			err := r.jobB.Wait()
			if err == nil || !strings.Contains(err.Error(), `connection to worker "a": `) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the job ended with %v, want %q", err, test.want)
			}
		})
	}
}

// handshakeAsA speaks for worker a, as often as it takes until b expects it.
func (r *rig) handshakeAsA(ctx context.Context) net.Conn {
	r.t.Helper()
	for {
		c := r.dialB()
		_, err := dialHandshake(c, newFrameReader(c, maxHandshake), r.a.o, runOne, "b")
		if err == nil {
			return c
		}
		var again *refusal
		if !errors.As(err, &again) || !again.again || ctx.Err() != nil {
			r.t.Fatal(err)
		}
	}
}

func TestMoreCreditsThanTheRoomAreRefused(t *testing.T) {
	for n, ok := range map[uint32]bool{1: true, 2: false, 1 << 31: false} {
		p := newPeer(&Mesh{}, "b")
		p.out[0] = &sender{peer: p, credit: 1}
		body := binary.BigEndian.AppendUint32(make([]byte, 4), n)
		if err := p.granted(body, 2); (err == nil) != ok {
			t.Errorf("%d credits for one batch: %v", n, err)
		}
	}
}

// A peer that reads nothing is lost after the write timeout, not never.
func TestPeerThatTakesNothingIsLost(t *testing.T) {
	r := newRig(t, Options{WriteTimeout: 10 * time.Millisecond})
	near, far := net.Pipe()
	defer far.Close()
	p := r.meshA.peer("b")
	r.meshA.job = r.jobA
	if !p.reserve() {
		t.Fatal("the peer is taken")
	}
	if err := p.start(near, newFrameReader(near, maxHandshake), 8); err != nil {
		t.Fatal(err)
	}
	r.push(r.batches[0], false)
	r.meshA.running.Wait()
	if err := r.jobA.Wait(); !errors.Is(err, os.ErrDeadlineExceeded) || !strings.Contains(err.Error(), `connection to worker "b"`) {
		t.Errorf("the job ended with %v", err)
	}
}
