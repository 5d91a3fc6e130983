package plan

import (
	"bytes"
	"encoding/json"
	"fmt"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// Marshal encodes a plan as JSON, by the rules of protobuf: one plan always as the same bytes. protojson alone
// varies its spaces on purpose.
func Marshal(p *pipepb.Pipeline) ([]byte, error) {
	data, err := protojson.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, data, "", "  "); err != nil {
		return nil, fmt.Errorf("encode plan: %w", err)
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

// Unmarshal reads what Marshal wrote. The error says if it is no plan, or none of a Millstream program.
func Unmarshal(data []byte) (*pipepb.Pipeline, error) {
	p := &pipepb.Pipeline{}
	if err := protojson.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("decode plan: %w", err)
	}
	if _, err := read(p); err != nil {
		return nil, err
	}
	return p, nil
}
