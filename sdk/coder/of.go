package coder

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// Of returns the coder of T: Beam's varint, double, bool, string and bytes for Go's, kv for a KV,
// nullable for a pointer, iterable for a slice or an array, a sorted map, and row for a struct.
//
//   - A struct's fields are encoded in the order of their declaration, embedded ones as one field
//     each. A tag `beam:"name"` names a field in the schema; its bytes do not change. An unexported
//     field is an error (but _ is left out).
//   - Fields may be added at the end: a row that was written before leaves them zero.
//   - In a struct, a nil slice or map is a null field and comes back nil. Anywhere else it comes back
//     empty.
//   - A time.Time keeps its instant to the nanosecond, and comes back in UTC.
//   - A type that has no encoding by these rules (netip.Addr, url.URL, big.Int …) uses its own
//     MarshalBinary and UnmarshalBinary if it has both, else its MarshalText and UnmarshalText,
//     which must not lose anything. That costs allocations.
//   - WithCoder decides for one type, wherever it occurs.
//
// Interfaces, channels, functions, complex numbers and recursive types are an error that names the
// field. T is examined once in a process; per value there is no reflection, but for maps and the
// types that marshal themselves.
func Of[T any](opts ...Option) (Coder[T], error) {
	n, err := compileCached(reflect.TypeFor[T](), opts, false)
	if err != nil {
		return nil, err
	}
	return compiled[T]{n}, nil
}

// Option changes how Of and KeyOf encode one type.
type Option func(*compiler)

// WithCoder encodes every X, wherever it occurs in the type, with c. In a key c must implement
// Deterministic.
func WithCoder[X any](c Coder[X]) Option {
	t := reflect.TypeFor[X]()
	n := &node{
		op: opCustom, typ: t, size: t.Size(), spec: SpecOf(c),
		customAppend: func(dst []byte, p unsafe.Pointer) ([]byte, error) { return c.Append(dst, *(*X)(p)) },
		customDecode: func(p unsafe.Pointer, src []byte) ([]byte, error) {
			v, rest, err := c.Decode(src)
			if err == nil {
				*(*X)(p) = v
			}
			return rest, err
		},
	}
	if d, ok := c.(Deterministic); ok {
		n.det = d.Deterministic()
	} else {
		n.det = fmt.Errorf("coder %T does not implement coder.Deterministic", c)
	}
	return func(cc *compiler) { cc.custom[t] = n }
}

// compiled is the coder of a type that Of examined.
type compiled[T any] struct{ n *node }

func (c compiled[T]) Append(dst []byte, v T) ([]byte, error) {
	out, err := c.n.append(dst, noescape(unsafe.Pointer(&v)))
	if err != nil {
		return dst, fmt.Errorf("encode %v: %w", c.n.typ, err)
	}
	return out, nil
}

func (c compiled[T]) Decode(src []byte) (T, []byte, error) {
	var v T
	rest, err := c.n.decode(noescape(unsafe.Pointer(&v)), src)
	if err != nil {
		var zero T
		return zero, nil, fmt.Errorf("decode %v: %w", c.n.typ, err)
	}
	return v, rest, nil
}

func (c compiled[T]) appendOuter(dst []byte, v T) ([]byte, error) {
	out, err := c.n.appendOuter(dst, noescape(unsafe.Pointer(&v)))
	if err != nil {
		return dst, fmt.Errorf("encode %v: %w", c.n.typ, err)
	}
	return out, nil
}

func (c compiled[T]) decodeOuter(src []byte) (v T, err error) {
	if err := c.n.decodeOuter(noescape(unsafe.Pointer(&v)), src); err != nil {
		var zero T
		return zero, fmt.Errorf("decode %v: %w", c.n.typ, err)
	}
	return v, nil
}

func (c compiled[T]) Deterministic() error { return c.n.det }
func (c compiled[T]) Spec() Spec           { return c.n.spec }

// noescape hides p from escape analysis, so that what it points to may stay on the stack. It is
// right because no node keeps p, or shows it to foreign code, beyond the call; the collector and the
// moving of stacks see p itself, which stays an ordinary pointer. While it is a number, nothing may move
// the stack: no check of the pointer either, which -race would put here and which may grow the stack.
//
//go:nosplit
//go:nocheckptr
func noescape(p unsafe.Pointer) unsafe.Pointer {
	u := uintptr(p)
	return *(*unsafe.Pointer)(unsafe.Pointer(&u))
}

type cacheKey struct {
	t   reflect.Type
	key bool
}

var cache sync.Map // cacheKey -> *node; options are not cached

func compileCached(t reflect.Type, opts []Option, key bool) (*node, error) {
	if len(opts) == 0 {
		if n, ok := cache.Load(cacheKey{t, key}); ok {
			return n.(*node), nil
		}
	}
	c := &compiler{
		root: t, key: key,
		custom: map[reflect.Type]*node{},
		done:   map[reflect.Type]*node{},
		active: map[reflect.Type]bool{},
	}
	for _, o := range opts {
		o(c)
	}
	n, err := c.compile(t, "")
	if err != nil {
		return nil, err
	}
	if len(opts) == 0 {
		cache.Store(cacheKey{t, key}, n)
	}
	return n, nil
}

// compiler examines one type, in one goroutine.
type compiler struct {
	root   reflect.Type
	key    bool // canonical: one zero, one NaN
	custom map[reflect.Type]*node
	done   map[reflect.Type]*node
	active map[reflect.Type]bool // types that are being examined further up
}

// errorf says where in the root type something has no encoding, what, and what to do.
func (c *compiler) errorf(path, format string, args ...any) error {
	where := fmt.Sprintf("coder: type %v", c.root)
	if path != "" {
		where += ", field " + strings.TrimPrefix(path, ".")
	}
	return fmt.Errorf("%s: %s", where, fmt.Sprintf(format, args...))
}

func (c *compiler) compile(t reflect.Type, path string) (*node, error) {
	if n := c.custom[t]; n != nil {
		if c.key && n.det != nil {
			return nil, c.errorf(path, "%v cannot be in a key: %v", t, n.det)
		}
		return n, nil
	}
	if n, ok := c.done[t]; ok {
		return n, nil
	}
	if c.active[t] {
		return nil, c.errorf(path, "%v contains itself, and a row is finite; pass coder.WithCoder for %[1]v", t)
	}
	c.active[t] = true
	defer delete(c.active, t)
	n := &node{typ: t, size: t.Size()}
	if err := c.fill(n, path); err != nil {
		m, ok := marshalNode(t)
		if !ok {
			return nil, err
		}
		n = m
	}
	for _, f := range n.fields {
		n.det = cmp.Or(n.det, f.node.det)
	}
	for _, m := range []*node{n.key, n.elem} {
		if m != nil {
			n.det = cmp.Or(n.det, m.det)
		}
	}
	c.done[t] = n
	return n, nil
}

// fill makes n the node of n.typ by the structure of the type.
func (c *compiler) fill(n *node, path string) (err error) {
	t := n.typ
	switch k := t.Kind(); k {
	case reflect.Bool:
		n.op, n.spec, n.native = opBool, Spec{URN: urnBool}, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n.op, n.spec, n.native = intOp(k, t.Size()), Spec{URN: urnVarInt}, true
	case reflect.Uint8:
		n.op, n.spec, n.native = opByte, Spec{URN: urnByte}, true
	case reflect.Float32:
		n.op, n.spec = opFloat32, Spec{URN: urnFloat}
		if c.key {
			n.op, n.spec.Detail = opFloat32Key, "canonical"
		}
	case reflect.Float64:
		n.op, n.spec = opFloat64, Spec{URN: urnDouble}
		if c.key {
			n.op, n.spec.Detail = opFloat64Key, "canonical"
		}
	case reflect.String:
		n.op, n.spec, n.native = opString, Spec{URN: urnString}, true
	case reflect.Pointer:
		n.op = opPointer
		if n.elem, err = c.compile(t.Elem(), path); err != nil {
			return err
		}
		n.spec = Spec{URN: urnNullable, Components: []Spec{n.elem.spec}}
	case reflect.Slice:
		if c.isByte(t.Elem()) {
			n.op, n.spec = opBytes, Spec{URN: urnBytes}
			return nil
		}
		n.op = opSlice
		if n.elem, err = c.compile(t.Elem(), path+"[]"); err != nil {
			return err
		}
		n.alloc = allocator(t)
		n.spec = Spec{URN: urnIterable, Components: []Spec{n.elem.spec}}
	case reflect.Array:
		n.len = t.Len()
		if c.isByte(t.Elem()) {
			n.op, n.native = opByteArray, true
			n.spec = Spec{URN: urnBytes, Detail: LogicalFixedBytes, Len: n.len}
			return nil
		}
		n.op = opArray
		if n.elem, err = c.compile(t.Elem(), path+"[]"); err != nil {
			return err
		}
		n.native = n.elem.native
		n.spec = Spec{URN: urnIterable, Components: []Spec{n.elem.spec}, Detail: detailArray, Len: n.len}
	case reflect.Map:
		n.op = opMap
		if n.key, err = c.compile(t.Key(), path+"[key]"); err != nil {
			return err
		}
		if n.elem, err = c.compile(t.Elem(), path+"[value]"); err != nil {
			return err
		}
		n.spec = Spec{URN: urnMap, Components: []Spec{n.key.spec, n.elem.spec}}
	case reflect.Struct:
		return c.fillStruct(n, path)
	case reflect.Interface:
		return c.errorf(path, "%v is an interface, which does not say what to decode; use a struct with a pointer for each case, or pass coder.WithCoder for it", t)
	default:
		return c.errorf(path, "%v has no encoding; leave it out, or pass coder.WithCoder for it or for the type around it", t)
	}
	return nil
}

// isByte reports whether a run of t is a byte string.
func (c *compiler) isByte(t reflect.Type) bool {
	return t.Kind() == reflect.Uint8 && c.custom[t] == nil
}

var timeType = reflect.TypeFor[time.Time]()

func (c *compiler) fillStruct(n *node, path string) error {
	t := n.typ
	if t.ConvertibleTo(timeType) {
		n.op = opTime
		n.spec = Spec{URN: urnRow, Detail: LogicalNanosInstant, Fields: []Field{
			{Name: "seconds", Spec: Spec{URN: urnVarInt}}, {Name: "nanos", Spec: Spec{URN: urnVarInt}}}}
		return nil
	}
	if isKV(t) {
		return c.fillKV(n, path)
	}
	n.op, n.native = opRow, true
	names := map[string]bool{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "_" {
			continue // no value: Go itself neither compares nor shows it
		}
		at := path + "." + f.Name
		name, tagged := f.Tag.Lookup("beam")
		switch embedded := f.Anonymous && f.Type.Kind() == reflect.Struct; {
		case !f.IsExported() && !embedded:
			return c.errorf(at, "unexported, so it would be lost; export it, give %v the methods MarshalBinary and UnmarshalBinary, or pass coder.WithCoder for %[1]v", t)
		case !tagged:
			name = f.Name
		case name == "" || name == "-":
			return c.errorf(at, "tag beam:%q is not a name, and a field cannot be left out: a value must come back equal", name)
		}
		if names[name] {
			return c.errorf(at, "a second field named %q", name)
		}
		names[name] = true
		m, err := c.compile(f.Type, at)
		if err != nil {
			return err
		}
		fld := field{node: m, op: m.op, off: f.Offset, name: name}
		switch m.op {
		case opPointer:
			fld.node, fld.op = m.elem, opPointer // the null bit takes the place of the pointer's own byte
			fallthrough
		case opSlice, opBytes, opMap:
			fld.nullable = true
			n.nullable = append(n.nullable, len(n.fields))
		}
		n.fields = append(n.fields, fld)
		n.native = n.native && m.native
	}
	n.spec = Spec{URN: urnRow}
	for _, f := range n.fields {
		n.spec.Fields = append(n.spec.Fields, Field{Name: f.name, Nullable: f.nullable, Spec: f.node.spec})
	}
	n.header = appendVarint(nil, uint64(len(n.fields)))
	return nil
}

func (c *compiler) fillKV(n *node, path string) (err error) {
	key, value := n.typ.Field(0), n.typ.Field(1)
	if n.key, err = c.compile(key.Type, path+".Key"); err != nil {
		return err
	}
	if n.elem, err = c.compile(value.Type, path+".Value"); err != nil {
		return err
	}
	n.op, n.off, n.native = opKV, value.Offset, n.key.native && n.elem.native
	n.spec = Spec{URN: urnKV, Components: []Spec{n.key.spec, n.elem.spec}}
	return nil
}

var kvPackage = reflect.TypeFor[KV[int, int]]().PkgPath()

func isKV(t reflect.Type) bool { return t.PkgPath() == kvPackage && strings.HasPrefix(t.Name(), "KV[") }

func intOp(k reflect.Kind, size uintptr) op {
	switch k {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		switch size {
		case 1:
			return opInt8
		case 2:
			return opInt16
		case 4:
			return opInt32
		}
		return opInt64
	}
	switch size {
	case 2:
		return opUint16
	case 4:
		return opUint32
	}
	return opUint64
}

// marshalNode is the node of a type that encodes itself.
func marshalNode(t reflect.Type) (*node, bool) {
	if t.Kind() == reflect.Interface || t.Kind() == reflect.Pointer {
		return nil, false
	}
	p := reflect.PointerTo(t)
	n := &node{op: opMarshal, typ: t, size: t.Size(), spec: Spec{URN: urnMarshaler, Detail: t.String()}}
	if p.Implements(reflect.TypeFor[encoding.BinaryMarshaler]()) && p.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]()) {
		return n, true
	}
	n.text = true
	return n, p.Implements(reflect.TypeFor[encoding.TextMarshaler]()) && p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
