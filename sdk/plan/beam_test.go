package plan_test

import (
	"os"
	"regexp"
	"testing"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

func protoJSON(t *testing.T, m proto.Message) string {
	t.Helper()
	data, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestBeamHasTheNamesOfOurs looks for every beam: name of urn.go among those that Beam's protos define.
func TestBeamHasTheNamesOfOurs(t *testing.T) {
	beams := map[string]bool{}
	var walk func(protoreflect.MessageDescriptors)
	walk = func(ms protoreflect.MessageDescriptors) {
		for i := range ms.Len() {
			for j := range ms.Get(i).Enums().Len() {
				values := ms.Get(i).Enums().Get(j).Values()
				for k := range values.Len() {
					beams[proto.GetExtension(values.Get(k).Options(), pipepb.E_BeamUrn).(string)] = true
				}
			}
			walk(ms.Get(i).Messages())
		}
	}
	walk(pipepb.File_org_apache_beam_model_pipeline_v1_beam_runner_api_proto.Messages())
	walk(pipepb.File_org_apache_beam_model_pipeline_v1_standard_window_fns_proto.Messages())

	source, err := os.ReadFile("urn.go")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`"(beam:[^"]*)"`).FindAllSubmatch(source, -1)
	if len(names) < 20 {
		t.Fatalf("%d names in urn.go", len(names))
	}
	for _, n := range names {
		if !beams[string(n[1])] {
			t.Errorf("Beam has no %s", n[1])
		}
	}
}
