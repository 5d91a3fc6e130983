package coordinator

import (
	_ "embed"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/millstream/millstream/internal/eventtime"
	"github.com/millstream/millstream/internal/kernel"
)

// index is the page for people: it shows what the API says, and needs nothing from elsewhere.
//
//go:embed index.html
var index []byte

// endpoints is what there is, for who asks for something else.
const endpoints = `not found; there is:
GET /                     a page for people
GET /api/v1/job           where the job stands
GET /api/v1/steps         the figures of each step, since the attempt began
GET /api/v1/checkpoints   the newest checkpoints
`

// Handler serves the job's status, as JSON and as a page that shows it:
//
//	GET /                     the page
//	GET /api/v1/job           where it stands
//	GET /api/v1/steps         the figures of each step, since the attempt began
//	GET /api/v1/checkpoints   the newest ones
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, endpoints, http.StatusNotFound)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'")
		_, _ = w.Write(index) // an error is the client's
	})
	mux.HandleFunc("GET /api/v1/job", func(w http.ResponseWriter, r *http.Request) {
		st, err := s.Status(r.Context())
		if err != nil {
			return // the client is gone
		}
		j := jobJSON{
			Name: s.o.Name, State: st.State, Attempt: st.Attempt, Degraded: st.Degraded, Generation: s.o.Generation,
			Workers: st.Workers, WorkersWanted: st.Wanted, Parallelism: int(s.o.Settings.Parallelism),
			WorkerNames: s.Workers(), UncommittedOutputs: st.Pending, Uptime: s.Uptime().Seconds(),
		}
		if st.Restored != 0 {
			j.RestoredCheckpoint = &st.Restored
		}
		if st.Err != nil {
			j.Error = st.Err.Error()
		}
		write(w, j)
	})
	mux.HandleFunc("GET /api/v1/steps", func(w http.ResponseWriter, r *http.Request) {
		steps := []stepJSON{}
		for _, st := range s.Steps() {
			j := stepJSON{Name: st.Name, RecordsIn: st.RecordsIn, RecordsOut: st.RecordsOut, LateDropped: st.LateDropped}
			j.setFigures(st.Figures)
			if t := eventtime.Time(st.Watermark); st.Watermark != math.MinInt64 && t > eventtime.Min && t < eventtime.Max {
				text := t.Time().UTC().Format(time.RFC3339Nano)
				j.Watermark = &text
			}
			j.AtEnd = eventtime.Time(st.Watermark) >= eventtime.Max
			steps = append(steps, j)
		}
		write(w, steps)
	})
	mux.HandleFunc("GET /api/v1/checkpoints", func(w http.ResponseWriter, r *http.Request) {
		st, err := s.Status(r.Context())
		if err != nil {
			return
		}
		j := checkpointsJSON{Completed: st.Complete, LatestID: st.Latest, History: []checkpointJSON{}}
		if st.Complete > 0 {
			j.LatestAge = new(float64(st.Age) / 1000)
		}
		for _, h := range st.History {
			j.History = append(j.History, checkpointJSON{h.ID, h.State, float64(h.Duration) / 1000, h.Bytes, h.NewBytes})
		}
		write(w, j)
	})
	return mux
}

type jobJSON struct {
	Name               string   `json:"name"`
	State              State    `json:"state"`
	Error              string   `json:"error,omitempty"`
	Attempt            int64    `json:"attempt"`
	Generation         uint64   `json:"generation"`
	RestoredCheckpoint *int64   `json:"restoredCheckpoint"` // null: the attempt began with nothing
	Degraded           bool     `json:"degraded"`
	Parallelism        int      `json:"parallelism"`
	Workers            int      `json:"workers"`
	WorkersWanted      int      `json:"workersWanted"`
	WorkerNames        []string `json:"workerNames"`
	UncommittedOutputs int      `json:"uncommittedOutputs"`
	Uptime             float64  `json:"uptime"` // seconds, of this coordinator
}

type stepJSON struct {
	Name        string  `json:"name"`
	RecordsIn   int64   `json:"recordsIn"`
	RecordsOut  int64   `json:"recordsOut"`
	LateDropped int64   `json:"lateDropped"`
	Watermark   *string `json:"watermark"` // null: at the beginning or the end of time
	AtEnd       bool    `json:"atEnd"`
	// What the step's code counts, by name.
	Counters      map[string]int64         `json:"counters,omitempty"`
	Distributions map[string]summaryJSON   `json:"distributions,omitempty"`
	Gauges        map[string]gaugeJSON     `json:"gauges,omitempty"`
	Histograms    map[string]histogramJSON `json:"histograms,omitempty"`
}

type summaryJSON struct {
	Count int64 `json:"count"`
	Sum   int64 `json:"sum"`
	Min   int64 `json:"min"`
	Max   int64 `json:"max"`
}

type gaugeJSON struct {
	Value int64  `json:"value"`
	At    string `json:"at"` // when it was set
}

type histogramJSON struct {
	summaryJSON
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
	P99 int64 `json:"p99"`
}

func (j *stepJSON) setFigures(f kernel.Figures) {
	j.Counters = f.Counters
	if len(f.Distributions) > 0 {
		j.Distributions = map[string]summaryJSON{}
	}
	for name, s := range f.Distributions {
		j.Distributions[name] = summaryJSON(s)
	}
	if len(f.Gauges) > 0 {
		j.Gauges = map[string]gaugeJSON{}
	}
	for name, r := range f.Gauges {
		j.Gauges[name] = gaugeJSON{r.Value, r.At.Time().Format(time.RFC3339Nano)}
	}
	if len(f.Histograms) > 0 {
		j.Histograms = map[string]histogramJSON{}
	}
	for name, h := range f.Histograms {
		j.Histograms[name] = histogramJSON{summaryJSON(h.Summary), h.Quantile(0.5), h.Quantile(0.9), h.Quantile(0.99)}
	}
}

type checkpointsJSON struct {
	Completed int              `json:"completed"`
	LatestID  int64            `json:"latestId"`
	LatestAge *float64         `json:"latestAge"` // seconds since one became complete; null: none has under this coordinator
	History   []checkpointJSON `json:"history"`
}

type checkpointJSON struct {
	ID       int64   `json:"id"`
	State    string  `json:"state"`
	Duration float64 `json:"duration"` // seconds
	Bytes    int64   `json:"bytes"`
	NewBytes int64   `json:"newBytes"`
}

func write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	// An error is the client's: it went away.
	_ = json.NewEncoder(w).Encode(v)
}
