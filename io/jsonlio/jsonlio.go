package jsonlio

import "github.com/millstream/millstream/sdk"

// Read reads the .jsonl files of a directory, or one file: each line is decoded into a T by encoding/json.
func Read[T any](name string, p *sdk.Pipeline, path string, opts ...sdk.ReadOption) sdk.PCollection[T] {
	var mine []SourceOption
	var rest []sdk.ReadOption
	for _, o := range opts {
		if m, ok := o.(SourceOption); ok {
			mine = append(mine, m)
		} else {
			rest = append(rest, o)
		}
	}
	return sdk.Read(name, p, Source[T](path, mine...), rest...)
}

// Write writes a collection into .jsonl files of a directory, exactly once: each element is a line, encoded
// by encoding/json. Files appear as checkpoints complete.
func Write[T any](name string, in sdk.PCollection[T], dir string, opts ...SinkOption) {
	sdk.Write(name, in, Sink[T](dir, opts...))
}
