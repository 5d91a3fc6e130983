package s3store

import (
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	accessKey = "TESTACCESSKEY"
	secretKey = "not-a-real-secret"
	program   = "../../../bin/versitygw"
)

// A server is a real S3 server on a directory, on a loopback port.
type server struct {
	dir, addr string
	cmd       *exec.Cmd
}

// startServer starts a server with the empty bucket "test", points the AWS environment of this test at it,
// and stops it with the test.
func startServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{dir: t.TempDir(), addr: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", accessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://"+s.addr)
	isolate(t)
	s.start(t)
	t.Cleanup(func() { s.kill(t) })
	b := connectTo(t, "s3://test")
	if _, err := b.client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &b.name}); err != nil {
		t.Fatal(err)
	}
	return s
}

// isolate keeps the configuration of whoever runs the test out of it.
func isolate(t *testing.T) {
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	for _, v := range []string{"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"} {
		t.Setenv(v, "") // so that it is put back
		os.Unsetenv(v)
	}
}

// start starts the server, again on the same port and directory after kill, and waits until it answers.
func (s *server) start(t *testing.T) {
	t.Helper()
	path, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("these tests run against a real S3 server; build it with scripts/build-servers.sh (%v)", err)
	}
	s.cmd = exec.Command(path, "--port", s.addr, "--quiet", "--keep-alive", "posix", s.dir)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+accessKey, "ROOT_SECRET_KEY="+secretKey)
	var output strings.Builder
	s.cmd.Stdout, s.cmd.Stderr = &output, &output
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		if c, err := net.Dial("tcp", s.addr); err == nil {
			c.Close()
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			s.kill(t)
			t.Fatalf("%s does not answer on %s: %s", path, s.addr, output.String())
		}
	}
}

// kill is kill -9.
func (s *server) kill(t *testing.T) {
	if err := s.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	if err := s.cmd.Wait(); err == nil {
		t.Error("the server ended by itself")
	}
}

// connectTo connects to a bucket that need not exist.
func connectTo(t *testing.T, rawURL string) *bucket {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	b, err := connect(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
