package control_test

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/millstream/millstream/runners/distributed/control"
)

// handshake runs both ends over a pipe.
func handshake(t *testing.T, clientToken, serverToken string) (client, server error) {
	t.Helper()
	c, s := net.Pipe()
	defer c.Close()
	defer s.Close()
	done := make(chan error)
	go func() {
		_, _, err := control.Credentials([]byte(serverToken), nil).ServerHandshake(s)
		done <- err
	}()
	_, _, client = control.Credentials([]byte(clientToken), nil).ClientHandshake(context.Background(), "coordinator", c)
	return client, <-done
}

func TestBothSidesMustKnowTheToken(t *testing.T) {
	if c, s := handshake(t, "secret", "secret"); c != nil || s != nil {
		t.Errorf("the same token: %v and %v", c, s)
	}
	for _, tokens := range [][2]string{{"secret", "other"}, {"", "secret"}, {"secret", ""}} {
		c, s := handshake(t, tokens[0], tokens[1])
		if c == nil || s == nil {
			t.Errorf("tokens %q: %v and %v", tokens, c, s)
		}
		if c != nil && !strings.Contains(c.Error(), "--token-file") {
			t.Errorf("tokens %q: the client is not told what to do: %v", tokens, c)
		}
	}
}

// TestProofCannotBeReflected: a stranger who sends a server's own proof back is not let in.
func TestProofCannotBeReflected(t *testing.T) {
	c, s := net.Pipe()
	defer c.Close()
	done := make(chan error)
	go func() {
		_, _, err := control.Credentials([]byte("secret"), nil).ServerHandshake(s)
		done <- err
	}()
	var answer [64]byte
	if _, err := c.Write(make([]byte, 32)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(answer[32:]); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the stranger was let in")
	}
}

// TestStrangersAreRefused: what does not speak the protocol ends with an error, and does not hang.
func TestStrangersAreRefused(t *testing.T) {
	for _, says := range []string{"", "GET / HTTP/1.1\r\n\r\n", strings.Repeat("x", 32), strings.Repeat("x", 64)} {
		c, s := net.Pipe()
		go func() {
			io.WriteString(c, says) // fails once the server has closed
			c.Close()
		}()
		go io.Copy(io.Discard, c)
		if _, _, err := control.Credentials([]byte("secret"), nil).ServerHandshake(s); err == nil {
			t.Errorf("%q was let in", says)
		}
	}
}
