package coordinator

import (
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/kernel"
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
	for object, answer := range map[string]any{"job": jobJSON{}, "step": stepJSON{}, "checkpoints": checkpointsJSON{}, "checkpoint": checkpointJSON{},
		"gauge": gaugeJSON{}, "distribution": summaryJSON{}, "histogram": histogramJSON{}} {
		var fields []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(answer)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
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

func TestStepsHaveTheFiguresOfTheirCode(t *testing.T) {
	s := &Server{figures: []Step{{Name: "sort", RecordsIn: 7, Figures: kernel.Figures{
		Counters:      map[string]int64{"seen": 7},
		Distributions: map[string]kernel.Summary{"sizes": {Count: 2, Sum: 30, Min: 10, Max: 20}},
		Gauges:        map[string]kernel.Reading{"depth": {Value: 3, At: 1500}},
		Histograms:    map[string]kernel.Buckets{"ms": {Summary: kernel.Summary{Count: 2, Sum: 3, Min: 1, Max: 2}, N: []int64{0, 0, 1, 1}}},
	}}}}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/steps", nil))
	want := `"counters":{"seen":7},"distributions":{"sizes":{"count":2,"sum":30,"min":10,"max":20}},` +
		`"gauges":{"depth":{"value":3,"at":"1970-01-01T00:00:01.5Z"}},"histograms":{"ms":{"count":2,"sum":3,"min":1,"max":2,"p50":1,"p90":2,"p99":2}}}`
	if got := w.Body.String(); !strings.Contains(got, want) {
		t.Errorf("%s\nlacks %s", got, want)
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
