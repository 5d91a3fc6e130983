// Command 01-wordcount counts the words of text files.
//
// It teaches what every program has: a build function that connects named steps, and Main, which parses flags and
// runs it. Time plays no part, so all words are in one window, which ends with the input.
//
//	$ go run ./examples/01-wordcount --output=out && cat out/* | sort | head -4
//	a: 1
//	against: 1
//	and: 1
//	arms: 1
package main

import (
	"flag"
	"fmt"
	"strings"
	"unicode"

	"github.com/millstream/millstream/io/textio"
	"github.com/millstream/millstream/runners"
	"github.com/millstream/millstream/sdk"
	"github.com/millstream/millstream/transforms/stats"
)

var (
	input  = flag.String("input", "examples/01-wordcount/testdata/*.txt", "`files` to read: a file, a directory or a pattern")
	output = flag.String("output", "out", "`directory` to write")
)

func build(p *sdk.Pipeline) error {
	lines := textio.Read("lines", p, *input)
	words := sdk.FlatMap("words", lines, split)
	counts := stats.Count("count", words)
	textio.Write("write", sdk.Map("format", counts, format), *output)
	return nil
}

// split emits the words of a line.
func split(line string, emit *sdk.Emitter[string]) error {
	for _, w := range strings.FieldsFunc(line, func(r rune) bool { return !unicode.IsLetter(r) }) {
		emit.Emit(strings.ToLower(w))
	}
	return nil
}

func format(kv sdk.KV[string, int64]) string { return fmt.Sprintf("%s: %d", kv.Key, kv.Value) }

func main() { runners.Main("wordcount", build) }
