package coordinator

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// A loss that the job survives is a warning, and what is not known is left out.
func TestFailedAttemptsAreLoggedByWhatTheyAre(t *testing.T) {
	for want, e := range map[string]StepFailed{
		`level=WARN msg="attempt ends: a worker cannot reach another" worker=worker-000001 attempt=2 error=gone`: {Worker: 1, Attempt: 2, Err: errors.New("gone"), Lost: true},
		`level=ERROR msg="attempt failed" worker=worker-000001 attempt=2 error=poison step=count`:                {Worker: 1, Attempt: 2, Err: errors.New("poison"), Step: "count"},
		`level=ERROR msg="attempt failed" worker=worker-000001 attempt=2 error=encode`:                           {Worker: 1, Attempt: 2, Err: errors.New("encode")},
	} {
		var log strings.Builder
		s := &Server{logger: slog.New(slog.NewTextHandler(&log, nil))}
		s.logEvent(e)
		if !strings.HasSuffix(log.String(), want+"\n") {
			t.Errorf("%s; want %s", log.String(), want)
		}
	}
}
