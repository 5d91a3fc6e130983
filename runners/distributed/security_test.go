package distributed

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millstream/millstream/statebackend"
	"github.com/millstream/millstream/statebackend/memory"
	"github.com/millstream/millstream/statebackend/storage"
	"github.com/millstream/millstream/statebackend/storage/file"
)

func TestPortsBeyondLoopbackMustBeSecured(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0", "example.org:80"} {
		if ln, err := (&security{}).listen(address); err == nil {
			ln.Close()
			t.Errorf("%s was opened to strangers", address)
		} else if !strings.Contains(err.Error(), "--token-file") {
			t.Errorf("%s: the error does not say what to do: %v", address, err)
		}
	}
	for _, test := range []struct {
		s       security
		address string
	}{{security{}, "127.0.0.1:0"}, {security{}, "localhost:0"}, {security{token: []byte("0123456789abcdef")}, "0.0.0.0:0"}} {
		ln, err := test.s.listen(test.address)
		if err != nil {
			t.Errorf("%s: %v", test.address, err)
			continue
		}
		ln.Close()
	}
}

func TestTokensThatCanBeGuessedAreRefused(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	for token, ok := range map[string]bool{"": false, "secret\n": false, "0123456789abcdef\n": true} {
		if err := os.WriteFile(name, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := (&Config{TokenFile: name}).security(); (err == nil) != ok {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if _, err := (&Config{TLSCert: "cert.pem"}).security(); err == nil {
		t.Error("a certificate without a key and authorities was taken")
	}
}

func TestAPIAsksForTheToken(t *testing.T) {
	h := bearer([]byte("0123456789abcdef"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "0123456789abcdef": 401, "Bearer 0123456789abcdef": 200} {
		r := httptest.NewRequest("GET", "/api/v1/job", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("Authorization %q: %d, want %d", header, w.Code, want)
		}
	}
}

func TestSettingsThatDoNotFitAreRefused(t *testing.T) {
	p := Program{Backends: map[string]statebackend.Driver{"memory": memory.Driver{}}, Storages: []storage.Driver{file.Driver}}
	for says, c := range map[string]Config{
		"take --state-backend=filesystem":             {StateBackend: "memory", CheckpointDir: "file:///x"},
		"rocksdb needs --checkpoint-dir":              {StateBackend: "rocksdb"},
		"filesystem needs --checkpoint-dir":           {StateBackend: "filesystem"},
		"build with -tags rocksdb":                    {StateBackend: "rocksdb", CheckpointDir: "file:///x"},
		"only for file://":                            {StateBackend: "filesystem", CheckpointDir: "gs://x"},
		"--restore=latest needs":                      {StateBackend: "memory", Restore: "latest"},
		"KeyGroups is 32769: must be from":            {StateBackend: "memory", KeyGroups: 32769, Parallelism: 9},
		"--parallelism=9: there are 8 key":            {StateBackend: "memory", KeyGroups: 8, Parallelism: 9},
		"--http=8080: write it as host:port":          {StateBackend: "memory", HTTP: "8080"},
		"--http=127.0.0.1:99999: write it":            {StateBackend: "memory", HTTP: "127.0.0.1:99999"},
		"--http=0.0.0.0:0: beyond this machine":       {StateBackend: "memory", HTTP: "0.0.0.0:0", Role: "local"},
		"--listen=0.0.0.0:0: beyond this machine":     {StateBackend: "memory", Listen: "0.0.0.0:0", Role: "coordinator"},
		"read --token-file: open /no/such/file":       {StateBackend: "memory", TokenFile: "/no/such/file"},
		"--coordinator=nowhere: write it as host:por": {Role: "worker", Coordinator: "nowhere"},
	} {
		if err := c.Validate(p); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v; it should say %q", c, err, says)
		}
	}
	for _, c := range []Config{
		{StateBackend: "memory", HTTP: "127.0.0.1:0", Role: "local", Listen: "0.0.0.0:0"},
		{StateBackend: "filesystem", CheckpointDir: "file:///x", Restore: "latest"},
		{Role: "worker", Coordinator: "host:80"},
	} {
		if err := c.Validate(p); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestWorkersGetTheRunnersEnvironmentOnly(t *testing.T) {
	got := settingsOf([]string{"HOME=/h", "AWS_SECRET_ACCESS_KEY=x", "MILLSTREAM_STATE_CACHE=1MiB", "MILLSTREAM_ROLE=coordinator", "MILLSTREAM_TOKEN_FILE=/t"})
	if len(got) != 1 || got[0] != "MILLSTREAM_STATE_CACHE=1MiB" {
		t.Errorf("workers get %q", got)
	}
}
