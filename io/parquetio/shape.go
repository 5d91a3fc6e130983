package parquetio

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// shape is what the reader knows of T: found once, by reflection; no record is read by it.
type shape struct {
	name   string  // of T
	size   uintptr // of T, in bytes
	fields []field
}

// field is a field of T that has a column.
type field struct {
	name, column string
	offset       uintptr // in T, in bytes
	typ          reflect.Type
}

func shapeOf[T any]() (shape, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct {
		return shape{}, fmt.Errorf("parquetio reads rows into structs, and %v is a %v", t, t.Kind())
	}
	s := shape{name: t.String(), size: t.Size()}
	for f := range fieldsOf(t) {
		tag, tagged := f.Tag.Lookup("parquet")
		column, _, _ := strings.Cut(tag, ",") // what follows tells how to write
		if column == "-" {
			continue
		}
		if !f.IsExported() {
			if tagged {
				return shape{}, fmt.Errorf("field %s.%s has a parquet tag but is not exported", s.name, f.Name)
			}
			continue
		}
		if column == "" {
			column = f.Name
		}
		c := field{name: f.Name, column: column, offset: f.Offset, typ: f.Type}
		if makers[kindOf(c.value())] == nil {
			return shape{}, fmt.Errorf("field %s.%s is a %v, which no column can be read into; leave it out by the tag `parquet:\"-\"`", s.name, f.Name, f.Type)
		}
		for _, other := range s.fields {
			if other.column == column {
				return shape{}, fmt.Errorf("fields %s and %s of %s both have the column %q", other.name, f.Name, s.name, column)
			}
		}
		s.fields = append(s.fields, c)
	}
	if len(s.fields) == 0 {
		return shape{}, fmt.Errorf("%s has no exported field, so that there is no column to read", s.name)
	}
	return s, nil
}

func fieldsOf(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// nullable says whether the field can hold null.
func (f field) nullable() bool { return f.typ.Kind() == reflect.Pointer }

// value is the type of the field's values, pointer or not.
func (f field) value() reflect.Type {
	if f.nullable() {
		return f.typ.Elem()
	}
	return f.typ
}

// kindOf is the kind by which a maker is found; a time.Time and a []byte have invented ones.
func kindOf(t reflect.Type) reflect.Kind {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return kindTime
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return kindBytes
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Struct:
		return reflect.Invalid
	}
	return t.Kind()
}

const (
	kindTime  = reflect.Struct
	kindBytes = reflect.Slice
)

// bind makes a column reader for each field.
func (s shape) bind(f *file) ([]column, error) {
	columns := make([]column, len(s.fields))
	for i, field := range s.fields {
		c, err := f.column(field.column)
		if err != nil {
			return nil, fmt.Errorf("field %s.%s: %w", s.name, field.name, err)
		}
		columns[i] = makers[kindOf(field.value())](base{owner: s.name, size: s.size, field: field, in: c})
		if columns[i] == nil {
			return nil, fmt.Errorf("field %s.%s: %s: column %q is %s and cannot be read into a %v",
				s.name, field.name, f.path, field.column, describe(c), field.typ)
		}
	}
	return columns, nil
}

func describe(c *parquet.Column) string {
	physical := "of an unknown type"
	if k := c.Type().Kind(); k >= parquet.Boolean && k <= parquet.FixedLenByteArray {
		physical = k.String()
	}
	if logical := c.Type().LogicalType(); logical != nil && logical.String() != "" {
		return logical.String() + " (" + physical + ")"
	}
	return physical
}

// makers make the reader of a column for each kind of field, or nil if the column's type does not fit.
var makers = map[reflect.Kind]func(base) column{
	reflect.Bool:    makeBool,
	reflect.Int:     makeInt[int],
	reflect.Int8:    makeInt[int8],
	reflect.Int16:   makeInt[int16],
	reflect.Int32:   makeInt[int32],
	reflect.Int64:   makeInt[int64],
	reflect.Uint:    makeInt[uint],
	reflect.Uint8:   makeInt[uint8],
	reflect.Uint16:  makeInt[uint16],
	reflect.Uint32:  makeInt[uint32],
	reflect.Uint64:  makeInt[uint64],
	reflect.Float32: makeFloat32,
	reflect.Float64: makeFloat64,
	reflect.String:  makeString,
	kindBytes:       makeBytes,
	kindTime:        makeTime,
}

func makeBool(b base) column {
	if b.in.Type().Kind() == parquet.Boolean {
		return &columnOf[bool]{base: b, plain: &bools{}}
	}
	return nil
}

func makeInt[G integer](b base) column {
	unsigned := false
	if l := b.in.Type().LogicalType(); l != nil && l.Value != nil {
		i, ok := l.Value.(*format.IntType)
		if !ok {
			return nil // a decimal, a date, a time: the bare number would mislead
		}
		unsigned = !i.IsSigned
	}
	switch k := b.in.Type().Kind(); {
	case k == parquet.Int32 && unsigned:
		return &columnOf[G]{base: b, plain: &ints[uint32, G]{of: uint32s}}
	case k == parquet.Int32:
		return &columnOf[G]{base: b, plain: &ints[int32, G]{of: int32s}}
	case k == parquet.Int64 && unsigned:
		return &columnOf[G]{base: b, plain: &ints[uint64, G]{of: uint64s}}
	case k == parquet.Int64:
		return &columnOf[G]{base: b, plain: &ints[int64, G]{of: int64s}}
	}
	return nil
}

func makeFloat32(b base) column {
	if b.in.Type().Kind() == parquet.Float {
		return &columnOf[float32]{base: b, plain: &fixed[float32, float32]{of: float32s, to: same[float32]}}
	}
	return nil
}

func makeFloat64(b base) column {
	switch b.in.Type().Kind() {
	case parquet.Float:
		return &columnOf[float64]{base: b, plain: &fixed[float32, float64]{of: float32s, to: widen}}
	case parquet.Double:
		return &columnOf[float64]{base: b, plain: &fixed[float64, float64]{of: float64s, to: same[float64]}}
	}
	return nil
}

func makeString(b base) column {
	if isBytes(b.in.Type()) {
		return &columnOf[string]{base: b, plain: &byteStrings[string]{to: (*arena).string}}
	}
	return nil
}

func makeBytes(b base) column {
	if isBytes(b.in.Type()) {
		own := &arena{}
		return &columnOf[[]byte]{base: b, plain: &byteStrings[[]byte]{to: (*arena).bytes}, clone: own.bytes}
	}
	return nil
}

func makeTime(b base) column {
	t := b.in.Type()
	if to := timeOf64(t); to != nil {
		return &columnOf[time.Time]{base: b, plain: &fixed[int64, time.Time]{of: int64s, to: to}}
	}
	if isDate(t) {
		return &columnOf[time.Time]{base: b, plain: &fixed[int32, time.Time]{of: int32s, to: dateOf}}
	}
	if t.Kind() == parquet.Int96 {
		return &columnOf[time.Time]{base: b, plain: &fixed[int96, time.Time]{of: int96s, to: timeOf96}}
	}
	return nil
}

func isBytes(t parquet.Type) bool {
	if l := t.LogicalType(); l != nil {
		if _, ok := l.Value.(*format.DecimalType); ok {
			return false
		}
	}
	return t.Kind() == parquet.ByteArray || t.Kind() == parquet.FixedLenByteArray
}
