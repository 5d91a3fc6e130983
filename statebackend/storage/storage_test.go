package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
	"github.com/millstream/millstream/testing/storagetest"
)

func Example() {
	ctx := context.Background()
	store := storage.New(&storagetest.Memory{}, "memory://")

	ref, err := store.Put(ctx, "shared/000017.sst", strings.NewReader("sorted"), 6)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := store.Get(ctx, ref)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	fmt.Printf("%s %v\n", b, err)

	for _, nonce := range []string{"first", "second"} {
		won, err := store.PutIfAbsent(ctx, "log/00000000000000000042", []byte(nonce))
		fmt.Println(nonce, won, err)
	}
	// Output:
	// sorted <nil>
	// first true <nil>
	// second false <nil>
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "log/00000000000000000042", "A.b_c-9/d..", "x/" + strings.Repeat("s", 200)} {
		if err := storage.CheckName(name); err != nil {
			t.Errorf("%q is refused: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/.tmp", ".a", "a b", "a\\b", "ä", "a\x00", "a:b", "a%2fb", "a*",
		strings.Repeat("s", 201), strings.Repeat("seg/", 201) + "x",
	} {
		if err := storage.CheckName(name); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestBadNamesDoNotReachTheDriver(t *testing.T) {
	s := storage.New(nil, "nil://") // a call would panic
	ctx := t.Context()
	_, put := s.Put(ctx, "../etc/passwd", strings.NewReader(""), 0)
	_, create := s.PutIfAbsent(ctx, "../etc/passwd", nil)
	_, read := s.Read(ctx, "../etc/passwd", 1)
	_, get := s.Get(ctx, storage.Ref{Name: "../etc/passwd"})
	_, getRange := s.GetRange(ctx, storage.Ref{Name: "../etc/passwd", Size: 9}, 1, 2)
	var list error
	for _, err := range s.List(ctx, "../etc", "") {
		list = err
	}
	for op, err := range map[string]error{
		"put": put, "create": create, "read": read, "get": get, "get range": getRange, "list": list,
		"delete": s.Delete(ctx, "../etc/passwd"),
	} {
		if !errors.Is(err, storage.ErrPermanent) || !strings.Contains(err.Error(), "nil:/") {
			t.Errorf("%s: error is %v, want a permanent one that names the store", op, err)
		}
	}
}

// TestGetVerifies stores something else than the Ref says.
func TestGetVerifies(t *testing.T) {
	ctx := t.Context()
	for _, c := range []struct{ stored, says string }{
		{"shorter", "ends 5 bytes early"},
		{"equal length and more", "more bytes than"},
		{"equal lengtH", "CRC32C"},
		{"", "ends 12 bytes early"},
	} {
		m := &storagetest.Memory{}
		s := storage.New(m, "memory://")
		ref, err := s.Put(ctx, "x", strings.NewReader("equal length"), 12)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(ctx, "x", strings.NewReader(c.stored), int64(len(c.stored))); err != nil {
			t.Fatal(err)
		}
		for how, read := range map[string]func(io.Reader) (int, error){
			"ReadAll":  func(r io.Reader) (int, error) { b, err := io.ReadAll(r); return len(b), err },
			"ReadFull": func(r io.Reader) (int, error) { return io.ReadFull(r, make([]byte, 12)) },
		} {
			r, err := s.Get(ctx, ref)
			if err != nil {
				t.Fatal(err)
			}
			n, err := read(r)
			if how == "ReadFull" && strings.HasPrefix(c.stored, "equal length") {
				continue // it stops before the surplus, and all that it took is right
			}
			if !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "memory:/") {
				t.Errorf("%s of %q: %d bytes, error %v; want ErrCorrupt saying %q", how, c.stored, n, err, c.says)
			}
			if _, again := r.Read(make([]byte, 1)); again != err {
				t.Errorf("%s of %q: a read after the error gives %v", how, c.stored, again)
			}
		}
	}
}

func TestGetRangeOutsideTheObject(t *testing.T) {
	s := storage.New(nil, "nil://")
	const most = 1<<63 - 1
	for _, c := range [][2]int64{{-1, 1}, {0, 11}, {10, 1}, {11, 0}, {1, -1}, {most, most}, {1, most}} {
		if _, err := s.GetRange(t.Context(), storage.Ref{Name: "x", Size: 10}, c[0], c[1]); err == nil {
			t.Errorf("range %d+%d of 10 bytes: no error", c[0], c[1])
		}
	}
}

func TestReadIsBounded(t *testing.T) {
	s := storage.New(&storagetest.Memory{}, "memory://")
	if _, err := s.Put(t.Context(), "x", strings.NewReader("0123456789"), 10); err != nil {
		t.Fatal(err)
	}
	if b, err := s.Read(t.Context(), "x", 10); err != nil || len(b) != 10 {
		t.Errorf("limit 10: %q, %v", b, err)
	}
	if b, err := s.Read(t.Context(), "x", 9); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("limit 9: %q, %v; want ErrCorrupt", b, err)
	}
}

func TestPutOfAShorterBody(t *testing.T) {
	s := storage.New(nil, "nil://")
	if _, err := s.Put(t.Context(), "x", strings.NewReader("abc"), 4); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error is %v, want one that wraps io.ErrUnexpectedEOF", err)
	}
}

// bucket is a Memory whose Create and List are replaced.
type bucket struct {
	storagetest.Memory
	create func(ctx context.Context, name string, body []byte) error
	list   func() ([]string, bool, error)
}

func (b *bucket) Create(ctx context.Context, name string, body []byte) error {
	return b.create(ctx, name, body)
}

func (b *bucket) List(context.Context, string, string, int) ([]string, bool, error) { return b.list() }

func TestPutIfAbsentRepeatsUntilItKnows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bucket{}
		var sent [][]byte
		b.create = func(ctx context.Context, name string, body []byte) error {
			sent = append(sent, bytes.Clone(body))
			if len(sent) < 50 {
				return errors.New("503 slow down")
			}
			return b.Memory.Create(ctx, name, body)
		}
		if won, err := storage.New(b, "b://").PutIfAbsent(t.Context(), "x", []byte("nonce")); err != nil || !won {
			t.Errorf("won is %t, error is %v", won, err)
		}
		for _, s := range sent {
			if string(s) != "nonce" {
				t.Errorf("sent %q, not the same bytes", s)
			}
		}
	})
}

func TestPutIfAbsentSaysWhenTheOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := errors.New("503 slow down")
		b := &bucket{create: func(context.Context, string, []byte) error { return slow }}
		s := storage.New(b, "b://")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err := s.PutIfAbsent(ctx, "x", []byte("nonce"))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, slow) || !strings.Contains(err.Error(), "outcome unknown") {
			t.Errorf("after an hour of 503: %v", err)
		}

		calls := 0
		b.create = func(context.Context, string, []byte) error {
			calls++
			return storage.Permanent(errors.New("access denied"))
		}
		if _, err := s.PutIfAbsent(t.Context(), "x", []byte("nonce")); !errors.Is(err, storage.ErrPermanent) || calls != 1 {
			t.Errorf("permanent error: sent %d times, %v", calls, err)
		}
	})
}

// TestPutIfAbsentThatIsGoneIsLost: the object that was in the way is deleted before it can be read.
func TestPutIfAbsentThatIsGoneIsLost(t *testing.T) {
	b := &bucket{create: func(context.Context, string, []byte) error { return storage.ErrExist }}
	if won, err := storage.New(b, "b://").PutIfAbsent(t.Context(), "x", []byte("nonce")); won || err != nil {
		t.Errorf("won is %t, error is %v; want lost", won, err)
	}
}

func TestListRefusesADriverThatBreaksTheContract(t *testing.T) {
	for _, c := range []struct {
		page []string
		more bool
	}{{nil, true}, {[]string{"a/2", "a/1"}, false}, {[]string{"a/1", "a/1"}, false}, {[]string{"b"}, false}, {[]string{"a/0"}, false}} {
		b := &bucket{list: func() ([]string, bool, error) { return c.page, c.more, nil }}
		var last error
		n := 0
		for _, err := range storage.New(b, "b://").List(t.Context(), "a/", "a/0") {
			last = err
			if n++; n > 10 {
				t.Fatalf("page %q, more %t: the list does not end", c.page, c.more)
			}
		}
		if last == nil {
			t.Errorf("page %q, more %t: no error", c.page, c.more)
		}
	}
}

type driver struct{ scheme string }

func (d driver) Scheme() string { return d.scheme }
func (d driver) Open(context.Context, *url.URL) (storage.Bucket, error) {
	return nil, errors.New("cannot reach it")
}

func TestOpenErrors(t *testing.T) {
	for raw, words := range map[string]string{
		"s3://user:topsecret@bucket/x": "credentials do not belong in the URL",
		"s3://user:topsecret@buck%et":  "not a URL",
		"gs://bucket":                  `no driver for scheme "gs", only for file://, s3://`,
		"/just/a/path":                 `no driver for scheme ""`,
		"s3://bucket/x":                "open storage s3://bucket/x: cannot reach it",
	} {
		_, err := storage.Open(t.Context(), raw, file.Driver, driver{"s3"})
		if err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("open %s: %v; want %q and no secret", raw, err, words)
		}
	}
}
