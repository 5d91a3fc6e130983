package direct_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millstream/millstream/runners/direct"
	"github.com/millstream/millstream/sdk"
)

func TestOptionsThatCannotBeAreNamed(t *testing.T) {
	for want, o := range map[string]direct.Options{
		"Parallelism is -1: must not be negative":  {Parallelism: -1},
		"KeyGroups is -1: must not be negative":    {KeyGroups: -1},
		"KeyGroups is 32769: must be at most":      {KeyGroups: 32769},
		"parallelism 3 exceeds the 2 key groups":   {KeyGroups: 2, Parallelism: 3},
		"CacheBytes is -1: must not be negative":   {CacheBytes: -1},
		"ReadBatch is -1: must not be negative":    {ReadBatch: -1},
		"RestoreEvery is -1: must not be negative": {RestoreEvery: -1},
		"CheckpointInterval is 1µs: must":          {CheckpointInterval: time.Microsecond},
		"WatermarkInterval is -1s: must":           {WatermarkInterval: -time.Second},
	} {
		_, err := direct.Run(t.Context(), "p", func(p *sdk.Pipeline) error { sdk.Create("in", p, 1); return nil }, o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
