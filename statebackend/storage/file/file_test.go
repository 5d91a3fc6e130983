package file

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/testing/storagetest"
)

func open(dir string) (storage.Bucket, error) {
	return Driver.Open(context.Background(), &url.URL{Scheme: "file", Path: filepath.ToSlash(dir)})
}

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	storagetest.Run(t, func(ctx context.Context, place string) (storage.Bucket, error) {
		return open(filepath.Join(dir, place))
	})
}

func TestOpenMakesMissingDirectories(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b with blank", "c")
	s, err := storage.Open(t.Context(), "file://"+strings.ReplaceAll(dir, " ", "%20"), Driver)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "x/y", strings.NewReader("z"), 1); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "x", "y")); string(b) != "z" {
		t.Errorf("the object is not a plain file: %q, %v", b, err)
	}
}

func TestErrorsNameThePathAndTheRemedy(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plain"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	fails := func(err error, words ...string) {
		t.Helper()
		if !errors.Is(err, storage.ErrPermanent) {
			t.Errorf("error is %v, want one that wraps ErrPermanent", err)
			return
		}
		for _, w := range words {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %q does not say %q", err, w)
			}
		}
	}
	for raw, word := range map[string]string{
		"file://host/dir":                  "three slashes",
		"file:relative":                    "three slashes",
		"file:///dir?x=1":                  "three slashes",
		"file://" + dir + "/plain":         "a part of the path is a file",
		"file://" + dir + "/plain/beneath": "a part of the path is a file",
	} {
		_, err := storage.Open(t.Context(), raw, Driver)
		fails(err, raw, word)
	}

	s, err := storage.Open(t.Context(), "file://"+dir, Driver)
	if err != nil {
		t.Fatal(err)
	}
	put := func(name string) error {
		_, err := s.Put(t.Context(), name, strings.NewReader("x"), 1)
		return err
	}
	fails(put("plain/x"), "put file://"+dir+"/plain/x", "cannot be the directory of another's")
	if err := put("d/x"); err != nil {
		t.Fatal(err)
	}
	fails(put("d"), "put file://"+dir+"/d:")
	_, err = s.PutIfAbsent(t.Context(), "d", []byte("x"))
	fails(err, "d is not a regular file")
	_, err = s.Read(t.Context(), "d", 10)
	fails(err, "d is not a regular file")
}

func TestFullDisk(t *testing.T) {
	// The process limit on file size stands in for a full disk: both fail the write, half-way.
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `ulimit -f 4; exec "$0" -test.run='^TestHelperPut$'`, os.Args[0])
	cmd.Env = append(os.Environ(), "FILE_TEST_DIR="+dir)
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "file too large") || !strings.Contains(string(out), "put file://"+dir+"/big") {
		t.Fatalf("a write beyond the limit: %v\n%s", err, out)
	}
	b, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if names, _, err := b.List(t.Context(), "", "", 10); err != nil || len(names) != 0 {
		t.Errorf("after the failure: list is %q, %v; want nothing", names, err)
	}
	if left := temps(t, dir); len(left) != 0 {
		t.Errorf("after the failure: temporary files %q", left)
	}
}

// TestHelperPut is the process that TestFullDisk starts; it does nothing in an ordinary run.
func TestHelperPut(t *testing.T) {
	dir := os.Getenv("FILE_TEST_DIR")
	if dir == "" {
		return
	}
	s, err := storage.Open(t.Context(), "file://"+dir, Driver)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "big", strings.NewReader(strings.Repeat("x", 1<<20)), 1<<20); err != nil {
		t.Fatal(err)
	}
}

func TestRootThatVanishedIsNotAnEmptyStore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mnt")
	b, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if names, _, err := b.List(t.Context(), "", "", 10); !errors.Is(err, storage.ErrPermanent) {
			t.Errorf("%s: list is %q, %v; want an error", when, names, err)
		}
		if _, err := b.Get(t.Context(), "x", 0, -1); err == nil || errors.Is(err, storage.ErrNotExist) {
			t.Errorf("%s: get: error is %v, want one other than ErrNotExist", when, err)
		}
	}
	if err := os.Rename(dir, dir+"-away"); err != nil {
		t.Fatal(err)
	}
	check("directory moved away")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	check("an empty directory in its place")
}

func TestOpenSweepsOnlyTemporaryFilesOfTheDead(t *testing.T) {
	dir := t.TempDir()
	if _, err := open(dir); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(dir, ".tmp")
	living, err := createTemp(temp)
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	dead, err := createTemp(temp)
	if err != nil {
		t.Fatal(err)
	}
	dead.Close() // what the kernel does when a process dies

	if _, err := open(dir); err != nil {
		t.Fatal(err)
	}
	if left := temps(t, dir); len(left) != 1 || left[0] != filepath.Base(living.Name()) {
		t.Errorf("after Open there are %q, want only %s", left, filepath.Base(living.Name()))
	}
	b, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if names, _, err := b.List(t.Context(), "", "", 10); err != nil || len(names) > 0 {
		t.Errorf("list is %q, %v; want nothing: temporary files are not objects", names, err)
	}
}

// TestKilledWriter kills a process in the middle of its Puts: each object is then whole or absent, what
// was acknowledged is there, and the next Open removes the leftovers.
func TestKilledWriter(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperPutForever$")
	cmd.Env = append(os.Environ(), "FILE_TEST_FOREVER="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := -1
	for acknowledged < 20 {
		if _, err := fmt.Fscanln(out, &acknowledged); err != nil {
			t.Fatalf("helper ended early: %v", errors.Join(err, cmd.Wait()))
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for { // what it had acknowledged before the kill came
		if _, err := fmt.Fscanln(out, &acknowledged); err != nil {
			break
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Fatal("helper ended by itself")
	}

	s, err := storage.Open(t.Context(), "file://"+dir, Driver)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for name, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if b, err := s.Read(t.Context(), name, 1<<20); err != nil || string(b) != strings.Repeat(name[:1], 1<<18) {
			t.Errorf("%s: %d bytes, error %v: not whole", name, len(b), err)
		}
		n++
	}
	if n <= acknowledged {
		t.Errorf("%d objects, but %d were acknowledged", n, acknowledged+1)
	}
	if left := temps(t, dir); len(left) != 0 {
		t.Errorf("after Open there are temporary files %q", left)
	}
}

// TestHelperPutForever is the process that TestKilledWriter starts; it does nothing in an ordinary run.
func TestHelperPutForever(t *testing.T) {
	dir := os.Getenv("FILE_TEST_FOREVER")
	if dir == "" {
		return
	}
	s, err := storage.Open(t.Context(), "file://"+dir, Driver)
	if err != nil {
		t.Fatal(err)
	}
	body := strings.Repeat("o", 1<<18)
	for i := 0; ; i++ {
		name := fmt.Sprintf("o%d/x", i)
		if i%2 == 0 {
			_, err = s.Put(t.Context(), name, strings.NewReader(body), int64(len(body)))
		} else {
			_, err = s.PutIfAbsent(t.Context(), name, []byte(body))
		}
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(i)
	}
}

func temps(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, ".tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
