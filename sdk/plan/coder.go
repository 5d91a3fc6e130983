package plan

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"

	pipepb "github.com/apache/beam/sdks/v2/go/pkg/beam/model/pipeline_v1"
	"google.golang.org/protobuf/proto"

	"github.com/millstream/millstream/sdk/coder"
)

// coder adds a coder with its components and returns its id, which is its Spec as text.
func (b *builder) coder(s coder.Spec) string {
	id := s.String()
	for i := 2; ; i++ {
		have, ok := b.specs[id]
		if !ok {
			break
		}
		if reflect.DeepEqual(have, s) {
			return id
		}
		id = fmt.Sprintf("%s #%d", s, i) // a name of a field can read like something else
	}
	b.specs[id] = s
	c := &pipepb.Coder{Spec: &pipepb.FunctionSpec{Urn: s.URN, Payload: s.Payload}}
	b.c.Coders[id] = c
	for _, part := range s.Components {
		c.ComponentCoderIds = append(c.ComponentCoderIds, b.coder(part))
	}
	switch {
	case s.URN == urnRow:
		b.row(c, s)
	case len(s.Payload) == 0 && s.Detail != "" && len(s.Components) == 0:
		c.Spec.Payload = []byte(s.Detail) // the Go type that encodes itself
	}
	return id
}

// rowField is a field in the payload of a row that Beam's schemas cannot tell; its coder is a component.
type rowField struct {
	Name     string `json:"name"`
	Nullable bool   `json:"nullable,omitempty"`
}

// row makes a coder that of a row: with a schema if Beam has one, else of our own with components.
func (b *builder) row(c *pipepb.Coder, s coder.Spec) {
	if schema, ok := schemaOf(s); ok {
		c.Spec.Payload = mustMarshal(schema)
		return
	}
	c.Spec.Urn = urnUnportableRow
	fields := []rowField{}
	for _, f := range s.Fields {
		fields = append(fields, rowField{f.Name, f.Nullable})
		c.ComponentCoderIds = append(c.ComponentCoderIds, b.coder(f.Spec))
	}
	c.Spec.Payload, _ = json.Marshal(fields) // strings and bools cannot fail
}

// schemaOf is the schema of a row, false if a field has no type in Beam's schemas with the same bytes: a kv, or
// what encodes itself.
func schemaOf(s coder.Spec) (*pipepb.Schema, bool) {
	schema := &pipepb.Schema{}
	for i, f := range s.Fields {
		t, ok := fieldType(f.Spec)
		if !ok || !utf8.ValidString(f.Name) {
			return nil, false
		}
		t.Nullable = t.Nullable || f.Nullable
		if s.Detail == coder.LogicalNanosInstant && f.Name == "nanos" {
			t = atomic(pipepb.AtomicType_INT32) // as Beam says; the bytes are those of an INT64
		}
		schema.Fields = append(schema.Fields, &pipepb.Field{Name: f.Name, Type: t, Id: int32(i)})
	}
	// Beam wants a UUID. Schemas that are the same have the same.
	h := sha256.Sum256(mustMarshal(schema))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // RFC 9562, version 8
	schema.Id = fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
	return schema, true
}

func fieldType(s coder.Spec) (*pipepb.FieldType, bool) {
	switch s.URN {
	case urnBool:
		return atomic(pipepb.AtomicType_BOOLEAN), true
	case urnByte:
		return atomic(pipepb.AtomicType_BYTE), true
	case urnVarInt:
		return atomic(pipepb.AtomicType_INT64), true
	case urnFloat:
		return atomic(pipepb.AtomicType_FLOAT), true
	case urnDouble:
		return atomic(pipepb.AtomicType_DOUBLE), true
	case urnString:
		return atomic(pipepb.AtomicType_STRING), true
	case urnBytes:
		t := atomic(pipepb.AtomicType_BYTES)
		if s.Detail == coder.LogicalFixedBytes {
			length := &pipepb.AtomicTypeValue{Value: &pipepb.AtomicTypeValue_Int32{Int32: int32(s.Len)}}
			t = logical(&pipepb.LogicalType{
				Urn: coder.LogicalFixedBytes, Representation: t, ArgumentType: atomic(pipepb.AtomicType_INT32),
				Argument: &pipepb.FieldValue{FieldValue: &pipepb.FieldValue_AtomicValue{AtomicValue: length}},
			})
		}
		return t, true
	case urnNullable:
		t, ok := fieldType(s.Components[0])
		if ok {
			ok = !t.Nullable // a pointer to a pointer
			t.Nullable = true
		}
		return t, ok
	case urnIterable:
		t, ok := fieldType(s.Components[0])
		return &pipepb.FieldType{TypeInfo: &pipepb.FieldType_ArrayType{ArrayType: &pipepb.ArrayType{ElementType: t}}}, ok
	case urnMap:
		k, kok := fieldType(s.Components[0])
		v, vok := fieldType(s.Components[1])
		return &pipepb.FieldType{TypeInfo: &pipepb.FieldType_MapType{MapType: &pipepb.MapType{KeyType: k, ValueType: v}}}, kok && vok
	case urnRow:
		schema, ok := schemaOf(s)
		t := &pipepb.FieldType{TypeInfo: &pipepb.FieldType_RowType{RowType: &pipepb.RowType{Schema: schema}}}
		if s.Detail == coder.LogicalNanosInstant {
			t = logical(&pipepb.LogicalType{Urn: coder.LogicalNanosInstant, Representation: t})
		}
		return t, ok
	}
	return nil, false
}

func atomic(t pipepb.AtomicType) *pipepb.FieldType {
	return &pipepb.FieldType{TypeInfo: &pipepb.FieldType_AtomicType{AtomicType: t}}
}

func logical(t *pipepb.LogicalType) *pipepb.FieldType {
	return &pipepb.FieldType{TypeInfo: &pipepb.FieldType_LogicalType{LogicalType: t}}
}

// mustMarshal encodes a schema. It cannot fail: its only strings are names, which are UTF-8.
func mustMarshal(m proto.Message) []byte {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return data
}
