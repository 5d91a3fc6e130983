package coder

import (
	"fmt"
	"strings"
)

// Spec describes an encoding as plain data: two coders with equal Specs write the same bytes. A plan
// is made of it, and a restored job compares it with what wrote its state.
type Spec struct {
	URN        string // of the standard coder, or one of Millstream's own
	Components []Spec // in the standard's order; none for a row
	Fields     []Field
	Payload    []byte // what the standard defines as such (of a row it is Fields)
	// Detail names what the URN leaves open: a schema's logical type, "array", or the Go type whose own
	// code does the encoding.
	Detail string
	Len    int // of an array, and of bytes of a fixed number
}

// Field is one field of a row.
type Field struct {
	Name     string
	Nullable bool
	Spec     Spec
}

// SpecOf describes c. A coder from outside this package is known by its Go type alone, unless it has
// a method Spec() Spec itself.
func SpecOf[T any](c Coder[T]) Spec {
	if s, ok := c.(interface{ Spec() Spec }); ok {
		return s.Spec()
	}
	return Spec{URN: urnCustom, Detail: fmt.Sprintf("%T", c)}
}

// String is short and complete, such as row{ID varint; Name? string_utf8; Tags? iterable(bytes)}. A
// question mark means nullable.
func (s Spec) String() string {
	var b strings.Builder
	s.write(&b)
	return b.String()
}

func (s Spec) write(b *strings.Builder) {
	name := strings.TrimPrefix(s.URN, "beam:coder:")
	b.WriteString(strings.TrimSuffix(name, ":v1"))
	switch s.Detail {
	case "":
	case detailArray, LogicalFixedBytes:
		fmt.Fprintf(b, "<%s:%d>", s.Detail, s.Len)
	default:
		fmt.Fprintf(b, "<%s>", s.Detail)
	}
	if len(s.Payload) > 0 {
		fmt.Fprintf(b, "[%x]", s.Payload)
	}
	if s.URN == urnRow {
		b.WriteByte('{')
		for i, f := range s.Fields {
			if i > 0 {
				b.WriteString("; ")
			}
			b.WriteString(f.Name)
			if f.Nullable {
				b.WriteByte('?')
			}
			b.WriteByte(' ')
			f.Spec.write(b)
		}
		b.WriteByte('}')
	}
	if len(s.Components) > 0 {
		b.WriteByte('(')
		for i, c := range s.Components {
			if i > 0 {
				b.WriteString(", ")
			}
			c.write(b)
		}
		b.WriteByte(')')
	}
}

// Beam's standard coders (beam_runner_api.proto, StandardCoders).
const (
	urnBytes               = "beam:coder:bytes:v1"
	urnString              = "beam:coder:string_utf8:v1"
	urnVarInt              = "beam:coder:varint:v1"
	urnDouble              = "beam:coder:double:v1"
	urnBool                = "beam:coder:bool:v1"
	urnKV                  = "beam:coder:kv:v1"
	urnNullable            = "beam:coder:nullable:v1"
	urnLengthPrefix        = "beam:coder:length_prefix:v1"
	urnShardedKey          = "beam:coder:sharded_key:v1"
	urnIterable            = "beam:coder:iterable:v1"
	urnStateBackedIterable = "beam:coder:state_backed_iterable:v1"
	urnIntervalWindow      = "beam:coder:interval_window:v1"
	urnGlobalWindow        = "beam:coder:global_window:v1"
	urnCustomWindow        = "beam:coder:custom_window:v1"
	urnWindowedValue       = "beam:coder:windowed_value:v1"
	urnParamWindowedValue  = "beam:coder:param_windowed_value:v1"
	urnTimer               = "beam:coder:timer:v1"
	urnRow                 = "beam:coder:row:v1"
)

// What Beam's schemas can encode but have no standard coder for, and what is ours alone.
const (
	urnByte      = "millstream:coder:byte:v1"
	urnFloat     = "millstream:coder:float:v1"
	urnMap       = "millstream:coder:map:v1"
	urnMarshaler = "millstream:coder:marshaler:v1"
	urnCustom    = "millstream:coder:custom:v1"
)

// Logical types of Beam's schemas, whose bytes are those of their representation: the Detail of a Spec.
const (
	LogicalNanosInstant = "beam:logical_type:nanos_instant:v1" // row{seconds varint; nanos varint}
	LogicalFixedBytes   = "beam:logical_type:fixed_bytes:v1"   // bytes
)

const detailArray = "array" // of a fixed length
