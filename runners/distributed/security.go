package distributed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// security is what keeps strangers out.
type security struct {
	token  []byte
	server *tls.Config // nil: plain
	client *tls.Config
}

func (c *Config) security() (*security, error) {
	s := &security{}
	if c.TokenFile != "" {
		b, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("read --token-file: %w", err)
		}
		if s.token = bytes.TrimSpace(b); len(s.token) < 16 {
			return nil, fmt.Errorf("--token-file=%s: a token of %d bytes can be guessed; take at least 16, for example of `openssl rand -hex 32`", c.TokenFile, len(s.token))
		}
	}
	if c.TLSCert == "" && c.TLSKey == "" && c.TLSCA == "" {
		return s, nil
	}
	if c.TLSCert == "" || c.TLSKey == "" || c.TLSCA == "" {
		return nil, errors.New("--tls-cert, --tls-key and --tls-ca belong together: processes prove to each other who they are")
	}
	cert, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	pem, err := os.ReadFile(c.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("read --tls-ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca=%s holds no certificate", c.TLSCA)
	}
	conf := &tls.Config{
		Certificates: []tls.Certificate{cert}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}
	s.server, s.client = conf, conf.Clone()
	return s, nil
}

// listen opens a port. Beyond loopback it must be secured.
func (s *security) listen(address string) (net.Listener, error) {
	if err := s.check(address); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	ln, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen on %s: another process uses that port: choose another", address)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return ln, nil
}

// check refuses an address that is none, and one beyond loopback if strangers could use it.
func (s *security) check(address string) error {
	host, err := splitAddress(address)
	if err == nil && !loopback(host) && s.token == nil && s.server == nil {
		err = errors.New("beyond this machine --token-file or --tls-cert, --tls-key and --tls-ca are required")
	}
	return err
}

// splitAddress returns the host of an address of the form host:port.
func splitAddress(address string) (host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return "", fmt.Errorf("write it as host:port, such as %s: %w", anyPort, err)
	}
	return host, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// listenAPI listens for HTTP; a nil listener means that there is no API.
func (s *security) listenAPI(address string) (net.Listener, error) {
	if address == "" {
		return nil, nil
	}
	ln, err := s.listen(address)
	if err != nil {
		return nil, fmt.Errorf("--http=%s: %w", address, err)
	}
	return ln, nil
}

// serveAPI serves HTTP and returns how to stop it. Beyond loopback the token is asked for, as a bearer token.
func (s *security) serveAPI(ln net.Listener, h http.Handler, logger *slog.Logger) (stop func() error) {
	host, _, _ := net.SplitHostPort(ln.Addr().String())
	if s.token != nil && !loopback(host) {
		h = bearer(s.token, h)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, TLSConfig: s.server}
	served := make(chan error, 1)
	go func() {
		if s.server != nil && !loopback(host) {
			served <- srv.ServeTLS(ln, "", "")
		} else {
			served <- srv.Serve(ln)
		}
	}()
	logger.Info("status API is up", "address", ln.Addr().String())
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			logger.Debug("close the status API", "error", err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("status API: %w", err)
		}
		return nil
	}
}

func bearer(token []byte, h http.Handler) http.Handler {
	want := append([]byte("Bearer "), token...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "the token is missing or wrong", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// executableDigest is the SHA-256 of the file that runs.
var executableDigest = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the executable: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the executable, which workers must have in common: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read the executable: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
})
