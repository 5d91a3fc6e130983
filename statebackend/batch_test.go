package statebackend

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// TestBatchIsEncodedAsDocumented holds the examples of docs/format/delta.md against the code.
func TestBatchIsEncodedAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/format/delta.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		do   func(*Batch)
		want string
	}{
		{func(b *Batch) { b.Put([]byte("k"), []byte("va")) }, "01016b027661"},
		{func(b *Batch) { b.Delete([]byte("k")) }, "02016b00"},
		{func(b *Batch) { b.DeleteRange(Range{Start: []byte("a"), End: []byte("c")}) }, "0301610163"},
	} {
		var b Batch
		test.do(&b)
		if got := hex.EncodeToString(b.Bytes()); got != test.want || !strings.Contains(string(page), "`"+test.want+"`") {
			t.Errorf("encoded %s; want %s, as on the page", got, test.want)
		}
		var again Batch
		if err := ReadBatch(bytes.NewReader(b.Bytes()), again.Add); err != nil || !bytes.Equal(again.Bytes(), b.Bytes()) {
			t.Errorf("%s is read as %x, %v", test.want, again.Bytes(), err)
		}
	}
}
