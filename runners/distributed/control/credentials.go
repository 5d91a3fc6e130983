package control

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Credentials secure control connections, at both ends. Each end proves that it knows the token, which does not
// cross the wire. Without TLS nobody but the network keeps others from reading along, or from changing what is
// sent later: use it on loopback or a network that is trusted.
func Credentials(token []byte, conf *tls.Config) credentials.TransportCredentials {
	inner := insecure.NewCredentials()
	if conf != nil {
		inner = credentials.NewTLS(conf)
	}
	return &tokenCredentials{inner, token}
}

type tokenCredentials struct {
	credentials.TransportCredentials
	token []byte
}

const (
	nonceSize        = 32
	handshakeTimeout = 10 * time.Second
)

var errToken = errors.New("the other side does not know the token: start both with the same --token-file")

// The handshake follows that of TLS, if there is one:
//
//	client                     server
//	  nonce c        ───────▶
//	                 ◀───────  nonce s, HMAC(token, "server" c s)
//	  HMAC(token, "client" c s)  ─▶
//	                 ◀───────  one byte, 1

// ClientHandshake implements credentials.TransportCredentials.
func (t *tokenCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	err = within(conn, func() error {
		var c, s, proof [nonceSize]byte
		rand.Read(c[:])
		if _, err := conn.Write(c[:]); err != nil {
			return err
		}
		if err := read(conn, s[:], proof[:]); err != nil {
			return err
		}
		if !hmac.Equal(proof[:], t.proof("server", c, s)) {
			return errToken
		}
		if _, err := conn.Write(t.proof("client", c, s)); err != nil {
			return err
		}
		var ok [1]byte
		if err := read(conn, ok[:]); err != nil {
			return fmt.Errorf("%w (%w)", errToken, err)
		}
		return nil
	})
	return conn, info, err
}

// ServerHandshake implements credentials.TransportCredentials.
func (t *tokenCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	err = within(conn, func() error {
		var c, s, proof [nonceSize]byte
		rand.Read(s[:])
		if err := read(conn, c[:]); err != nil {
			return err
		}
		if _, err := conn.Write(append(s[:], t.proof("server", c, s)...)); err != nil {
			return err
		}
		if err := read(conn, proof[:]); err != nil {
			return err
		}
		if !hmac.Equal(proof[:], t.proof("client", c, s)) {
			return errToken
		}
		_, err := conn.Write([]byte{1})
		return err
	})
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (t *tokenCredentials) Clone() credentials.TransportCredentials {
	return &tokenCredentials{t.TransportCredentials.Clone(), t.token}
}

func (t *tokenCredentials) proof(who string, c, s [nonceSize]byte) []byte {
	h := hmac.New(sha256.New, t.token)
	h.Write([]byte(who))
	h.Write(c[:])
	h.Write(s[:])
	return h.Sum(nil)
}

// within runs a handshake that must not take long, and closes the connection if it fails.
func within(c net.Conn, f func() error) error {
	err := c.SetDeadline(time.Now().Add(handshakeTimeout))
	if err == nil {
		err = f()
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		c.Close()
		return fmt.Errorf("handshake: %w", err)
	}
	return nil
}

func read(r io.Reader, into ...[]byte) error {
	for _, b := range into {
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
	}
	return nil
}
