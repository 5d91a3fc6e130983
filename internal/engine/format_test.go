package engine

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/millstream/millstream/internal/kernel"
	"github.com/millstream/millstream/sdk/coder"
	"github.com/millstream/millstream/sdk/window"
)

// TestChannelStateIsEncodedAsDocumented holds the examples of docs/format/channel-state.md against the code.
func TestChannelStateIsEncodedAsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/format/channel-state.md")
	if err != nil {
		t.Fatal(err)
	}
	c, err := coder.Of[string]()
	if err != nil {
		t.Fatal(err)
	}
	rows := &kernel.Rows[string]{E: []kernel.Element[string]{{Value: "a", Time: 5, Window: window.New(0, 1000)}}}
	for _, test := range []struct {
		item Item
		want string
	}{
		{Item{kind: itemStatus, idle: true, watermark: 1000}, "7301d00f"},
		{Item{kind: itemBatch, batch: rows}, "6208010a00d00f000161"},
	} {
		b, err := test.item.Append(nil, kernel.NewCodec(c))
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(b); got != test.want || !strings.Contains(string(page), "`"+test.want+"`") {
			t.Errorf("encoded %s; want %s, as on the page", got, test.want)
		}
	}
}
