package s3store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/testing/storagetest"
)

func TestConformance(t *testing.T) {
	startServer(t)
	storagetest.Run(t, func(ctx context.Context, place string) (storage.Bucket, error) {
		return Driver.Open(ctx, &url.URL{Scheme: "s3", Host: "test", Path: "/" + place})
	})
}

func openTest(t *testing.T) *storage.Store {
	t.Helper()
	s, err := storage.Open(t.Context(), "s3://test/job", Driver)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestKilledServer kills the server in the middle of Puts. What it had acknowledged is there after a
// restart; a create-only write that was under way finds out how it ended.
func TestKilledServer(t *testing.T) {
	srv := startServer(t)
	s := openTest(t)
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<13)

	var mu sync.Mutex
	var acknowledged []storage.Ref
	enough := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				ref, err := s.Put(ctx, fmt.Sprintf("put/%d/%d", w, i), bytes.NewReader(body), int64(len(body)))
				if err != nil {
					return
				}
				mu.Lock()
				if acknowledged = append(acknowledged, ref); len(acknowledged) == 50 {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	const creators = 4
	done := make([]int, creators) // writes 0 … done-1 returned
	finish := make(chan struct{})
	var creating sync.WaitGroup
	errs := make([]error, creators)
	for w := range creators {
		creating.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("log/%d/%d", w, i)
				won, err := s.PutIfAbsent(t.Context(), name, []byte(name))
				if err != nil || !won {
					errs[w] = fmt.Errorf("create %s: won is %t, %w", name, won, err)
					return
				}
				done[w] = i + 1
				select {
				case <-finish:
					return
				default:
				}
			}
		})
	}
	<-enough
	srv.kill(t)
	cancel()
	wg.Wait()
	close(finish) // each creator ends after the write that the kill has hit
	srv.start(t)
	creating.Wait()

	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	for _, ref := range acknowledged {
		r, err := s.Get(t.Context(), ref)
		if err != nil {
			t.Errorf("acknowledged, but: %v", err)
			continue
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Errorf("acknowledged, but: %v", err)
		}
		r.Close()
	}
	creates := 0
	for w, n := range done {
		for i := range n {
			name := fmt.Sprintf("log/%d/%d", w, i)
			if b, err := s.Read(t.Context(), name, 100); err != nil || string(b) != name {
				t.Errorf("acknowledged, but %s holds %q, %v", name, b, err)
			}
			creates++
		}
	}
	t.Logf("%d puts and %d creates acknowledged around the kill", len(acknowledged), creates)
}

// TestFailedUploadLeavesNoParts: the body of a large object breaks in the middle, or changes, or ctx ends.
func TestFailedUploadLeavesNoParts(t *testing.T) {
	startServer(t)
	s := openTest(t)
	b := connectTo(t, "s3://test/job")
	const size = 5 * partSize
	for what, at := range map[string]func(cancel func(), p []byte) error{
		"broken body":   func(func(), []byte) error { return errors.New("disk is broken") },
		"cancelled ctx": func(cancel func(), _ []byte) error { cancel(); return nil },
		"changed body":  func(_ func(), p []byte) error { p[0] = 1; return nil },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.Put(ctx, "shared/big", &breaking{size: size, at: func(p []byte) error { return at(cancel, p) }}, size)
		cancel()
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		t.Logf("%s: %v", what, err)
		if _, err := s.Read(t.Context(), "shared/big", size); !errors.Is(err, storage.ErrNotExist) {
			t.Errorf("%s: the object may be read: %v", what, err)
		}
		out, err := b.client.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &b.name})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range out.Uploads {
			t.Errorf("%s: the upload of %s is left", what, aws.ToString(u.Key))
		}
	}
}

// breaking is a body of zeros that calls at whenever its last byte is read after the first time: by the driver.
type breaking struct {
	size  int64
	at    func(p []byte) error
	reads atomic.Int32
}

func (b *breaking) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off+int64(len(p)) >= b.size && b.reads.Add(1) >= 2 {
		return len(p), b.at(p)
	}
	return len(p), nil
}

func TestForeignKeysAreNotObjects(t *testing.T) {
	startServer(t)
	s := openTest(t)
	b := connectTo(t, "s3://test/job")
	for _, key := range []string{"dir/", "with blank", "ok", ".hidden/x", "~"} {
		if _, err := b.client.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &b.name, Key: b.key(key)}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for name, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if got := strings.Join(names, " "); got != "ok" {
		t.Errorf("list is %q, want ok alone", got)
	}
}

func TestErrorsNameTheRemedyAndNoSecret(t *testing.T) {
	srv := startServer(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		url       string
		env       map[string]string
		says      []string
		permanent bool
	}{
		"no such bucket": {"s3://absent/x", nil, []string{`bucket "absent" does not exist`, srv.addr, "create it", "AWS_ENDPOINT_URL_S3"}, true},
		"bad secret":     {"s3://test/x", map[string]string{"AWS_SECRET_ACCESS_KEY": "wrong-secret"}, []string{"does not accept the credentials", `"test"`, srv.addr, "AWS_ACCESS_KEY_ID"}, true},
		"unknown key":    {"s3://test/x", map[string]string{"AWS_ACCESS_KEY_ID": "NOBODY"}, []string{"does not accept the credentials", srv.addr}, true},
		"no credentials": {"s3://test/x", map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, []string{"no AWS credentials", "AWS_PROFILE"}, true},
		"unreachable":    {"s3://test/x", map[string]string{"AWS_ENDPOINT_URL_S3": "http://" + closed}, []string{"cannot reach http://" + closed, `"test"`, "is the server up"}, false},
		"bad URL":        {"s3:///x", nil, []string{"must look like s3://bucket"}, true},
		"bad prefix":     {"s3://test/a//b", nil, []string{"must look like s3://bucket"}, true},
		"query":          {"s3://test/a?b=c", nil, []string{"must look like s3://bucket"}, true},
	} {
		t.Run(what, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			_, err := storage.Open(t.Context(), c.url, Driver)
			if err == nil || errors.Is(err, storage.ErrPermanent) != c.permanent {
				t.Fatalf("error is %v, want one that is permanent: %t", err, c.permanent)
			}
			for _, w := range append(c.says, "open storage "+c.url) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error does not say %q: %v", w, err)
				}
			}
			for _, secret := range []string{secretKey, "wrong-secret"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error shows a secret: %v", err)
				}
			}
		})
	}
}

// fake answers as a real server cannot be made to.
func fake(t *testing.T, answer http.HandlerFunc) *bucket {
	srv := httptest.NewServer(answer)
	t.Cleanup(srv.Close)
	isolate(t)
	t.Setenv("AWS_ACCESS_KEY_ID", accessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
	t.Setenv("AWS_ENDPOINT_URL_S3", srv.URL)
	return connectTo(t, "s3://test/job")
}

func TestServerThatIgnoresIfNoneMatchIsRefused(t *testing.T) {
	b := fake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, "<ListBucketResult/>")
		}
	})
	if err := b.probe(t.Context()); !errors.Is(err, storage.ErrPermanent) || !strings.Contains(err.Error(), "in spite of If-None-Match") {
		t.Errorf("error is %v", err)
	}
}

// TestBrokenDownloadGoesOn cuts the connection in the middle of an answer, again and again.
func TestBrokenDownloadGoesOn(t *testing.T) {
	const content = "0123456789abcdef"
	for _, c := range []struct {
		offset, length int64
		bytes          int // that each answer has before it breaks
		want           string
		etag           string // of the later answers
		says           string // the error, if any
	}{
		{0, -1, 5, content, `"1"`, ""},
		{2, 12, 5, content[2:14], `"1"`, ""},
		{0, -1, 0, "", `"1"`, "EOF"},
		{0, -1, 5, "", `"2"`, "replaced while it was read"},
	} {
		requests := 0
		b := fake(t, func(w http.ResponseWriter, r *http.Request) {
			etag := `"1"`
			if requests++; requests > 1 {
				etag = c.etag
			}
			if m := r.Header.Get("If-Match"); m != "" && m != etag {
				w.WriteHeader(http.StatusPreconditionFailed)
				fmt.Fprint(w, "<Error><Code>PreconditionFailed</Code></Error>")
				return
			}
			begin, end := 0, len(content)-1
			if rng := r.Header.Get("Range"); rng != "" {
				if _, err := fmt.Sscanf(rng, "bytes=%d-%d", &begin, &end); err != nil {
					t.Error(err)
				}
			}
			w.Header().Set("ETag", etag)
			w.Header().Set("Content-Length", fmt.Sprint(end+1-begin))
			fmt.Fprint(w, content[begin:min(begin+c.bytes, end+1)])
			w.(http.Flusher).Flush()
			if begin+c.bytes <= end {
				panic(http.ErrAbortHandler) // cuts the connection
			}
		})
		r, err := b.Get(t.Context(), "x", c.offset, c.length)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		switch {
		case c.says == "" && (err != nil || string(got) != c.want):
			t.Errorf("%+v: %q, %v", c, got, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

// TestAnswersToACreate: which answers leave the outcome open, and that busy servers are asked again.
func TestAnswersToACreate(t *testing.T) {
	for _, c := range []struct {
		status    int
		code      string
		want      string // "", "exists", "permanent", "open"
		repeated  bool
		recovered bool // whether the server answers 200 from the second request on
	}{
		{200, "", "", false, false},
		{412, "PreconditionFailed", "exists", false, false},
		{409, "ConditionalRequestConflict", "open", false, false},
		{409, "ObjectParentIsFile", "permanent", false, false},
		{403, "AccessDenied", "permanent", false, false},
		{301, "PermanentRedirect", "permanent", false, false},
		{501, "NotImplemented", "permanent", false, false},
		{503, "SlowDown", "", true, true},
		{500, "InternalError", "", true, true},
	} {
		requests := 0
		b := fake(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("If-None-Match") != "*" {
				t.Errorf("%s without If-None-Match", r.Method)
			}
			if requests++; c.code == "" || c.recovered && requests > 1 {
				return
			}
			w.WriteHeader(c.status)
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>m</Message></Error>", c.code)
		})
		err := b.Create(t.Context(), "log/1", []byte("x"))
		got := ""
		switch {
		case errors.Is(err, storage.ErrExist):
			got = "exists"
		case errors.Is(err, storage.ErrPermanent):
			got = "permanent"
		case err != nil:
			got = "open"
		}
		if got != c.want || (requests > 1) != c.repeated {
			t.Errorf("%d %s: outcome %q after %d requests (%v), want %q", c.status, c.code, got, requests, err, c.want)
		}
	}
}
