package control

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/millstream/millstream/internal/kernel"
)

func TestFiguresComeBackFromTheirMessage(t *testing.T) {
	for _, f := range []kernel.Figures{
		{},
		{Counters: map[string]int64{"n": -3}},
		{
			Counters:      map[string]int64{"a": 1, "b": 0},
			Distributions: map[string]kernel.Summary{"d": {Count: 2, Sum: 30, Min: -10, Max: 40}},
			Gauges:        map[string]kernel.Reading{"g": {Value: -3, At: 1500}},
			Histograms:    map[string]kernel.Buckets{"h": {Summary: kernel.Summary{Count: 2, Sum: 3, Min: 1, Max: 2}, N: []int64{0, 0, 1, 1}}},
		},
	} {
		data, err := proto.Marshal(&StepMetrics{Figures: PackFigures(f)})
		if err != nil {
			t.Fatal(err)
		}
		var back StepMetrics
		if err := proto.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(f, back.Figures.Unpack()); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
}
