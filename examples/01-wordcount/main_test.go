package main

import (
	"testing"

	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/testing/passert"
	"github.com/millstream/millstream/testing/ptest"
	"github.com/millstream/millstream/transforms/stats"
)

func TestWordsAreCountedRegardlessOfCaseAndPunctuation(t *testing.T) {
	ptest.Run(t, func(p *sdk.Pipeline) error {
		words := sdk.FlatMap("words", sdk.Create("lines", p, "To be, or", "not to be", "", "'tis"), split)
		passert.PerKey("counts", stats.Count("count", words), map[string]int64{"to": 2, "be": 2, "or": 1, "not": 1, "tis": 1})
		return nil
	})
}
