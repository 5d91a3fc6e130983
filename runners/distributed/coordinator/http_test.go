package coordinator

import (
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestIndexIsAPageByItself(t *testing.T) {
	w := httptest.NewRecorder()
	(&Server{}).Handler().ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	page := w.Body.String()
	if w.Code != 200 || !strings.HasPrefix(page, "<!doctype html>") || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %v: %.100s", w.Code, w.Header(), page)
	}
	if outside := regexp.MustCompile(`(?i)https?://|src=|@import|innerHTML`).FindString(page); outside != "" {
		t.Errorf("the page has %q", outside)
	}
}

// The page reads fields of the API by name, and nothing else would notice one that was renamed.
func TestIndexKnowsTheFieldsOfTheAPI(t *testing.T) {
	for object, answer := range map[string]any{"job": jobJSON{}, "step": stepJSON{}, "checkpoints": checkpointsJSON{}, "checkpoint": checkpointJSON{}} {
		var fields []string
		for i := range reflect.TypeOf(answer).NumField() {
			name, _, _ := strings.Cut(reflect.TypeOf(answer).Field(i).Tag.Get("json"), ",")
			fields = append(fields, name)
		}
		used := regexp.MustCompile(`\b`+object+`\.(\w+)`).FindAllSubmatch(index, -1)
		if len(used) == 0 {
			t.Errorf("the page uses nothing of %s", object)
		}
		for _, u := range used {
			if !slices.Contains(fields, string(u[1])) {
				t.Errorf("the page uses %s, and the API has %q", u[0], fields)
			}
		}
	}
}

func TestUnknownPathsListWhatThereIs(t *testing.T) {
	for _, path := range []string{"/nothing", "/api/v1/", "/index.html"} {
		w := httptest.NewRecorder()
		(&Server{}).Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if body := w.Body.String(); w.Code != 404 || !strings.Contains(body, "GET /api/v1/checkpoints") {
			t.Errorf("%s: %d %q", path, w.Code, body)
		}
	}
}
