package howto_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/io/textio"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/sdk/watermark"
	"github.com/millstream/millstream/sdk/window"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
)

// lineTime is the time at the beginning of "2026-03-01T10:00:00Z /home". The zero time says that there is none.
func lineTime(line string) time.Time {
	stamp, _, _ := strings.Cut(line, " ")
	t, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return time.Time{}
	}
	return t
}

func parse(line string) (Click, error) {
	_, page, found := strings.Cut(line, " ")
	t := lineTime(line)
	if !found || t.IsZero() {
		return Click{}, errors.New("want a time and a page")
	}
	return Click{Page: page, Time: t}, nil
}

func readClicks(p *sdk.Pipeline, path string) (clicks sdk.PCollection[Click], bad sdk.PCollection[sdk.Failed[string]]) {
	lines := textio.Read("lines", p, path, sdk.EventTime(lineTime, watermark.Bounded(time.Minute)))
	clicks = sdk.MapErr("parse", lines, parse, sdk.ErrorsTo(&bad))
	return clicks, bad
}

func TestLinesHaveTheirTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clicks.txt")
	if err := os.WriteFile(path, []byte("2026-03-01T10:00:00Z /home\nyesterday /home\n2026-03-01T11:00:00Z /home\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	ptest.Run(t, func(p *sdk.Pipeline) error {
		clicks, bad := readClicks(p, path)
		passert.Equals("bad", bad, sdk.Failed[string]{Value: "yesterday /home", Err: "want a time and a page"})
		passert.That("ten", countHourly(clicks)).InWindow(window.Between(at(10, 0), at(11, 0))).Equals(sdk.Pair("/home", int64(1)))
		return nil
	})
}
