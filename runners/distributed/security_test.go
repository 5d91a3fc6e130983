package distributed

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	for says, c := range map[string]Config{
		"take --state-backend=filesystem":  {StateBackend: "memory", CheckpointDir: "file:///x"},
		"rocksdb needs --checkpoint-dir":   {StateBackend: "rocksdb"},
		"--restore=latest needs":           {StateBackend: "memory", Restore: "latest"},
		"--parallelism=9: there are 8 key": {StateBackend: "memory", KeyGroups: 8, Parallelism: 9},
	} {
		if err := c.defaults(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v; it should say %q", c, err, says)
		}
	}
}

func TestWorkersGetTheRunnersEnvironmentOnly(t *testing.T) {
	got := settingsOf([]string{"HOME=/h", "AWS_SECRET_ACCESS_KEY=x", "MILLSTREAM_STATE_CACHE=1MiB", "MILLSTREAM_ROLE=coordinator", "MILLSTREAM_TOKEN_FILE=/t"})
	if len(got) != 1 || got[0] != "MILLSTREAM_STATE_CACHE=1MiB" {
		t.Errorf("workers get %q", got)
	}
}
