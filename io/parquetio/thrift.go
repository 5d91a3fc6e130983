package parquetio

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Metadata in a Parquet file is a struct in Thrift's compact protocol. A decoder that believes its lengths
// allocates for a list of two thousand million elements that five bytes announce; skimming over it first
// bounds what it can allocate to a multiple of the bytes that are there.
// (github.com/apache/thrift, doc/specs/thrift-compact-protocol.md)

const maxDepth = 32 // of structs and lists in each other; Parquet's own nest about 8 deep

var errCutOff = errors.New("metadata is cut off")

// skimStruct returns the length of the struct at the start of b.
func skimStruct(b []byte) (int, error) {
	s := skimmer{b: b}
	if err := s.structure(0); err != nil {
		return 0, err
	}
	return s.at, nil
}

type skimmer struct {
	b  []byte
	at int
}

// Types of the compact protocol.
const (
	typeStop   = 0
	typeTrue   = 1
	typeFalse  = 2
	typeByte   = 3
	typeI16    = 4
	typeI32    = 5
	typeI64    = 6
	typeDouble = 7
	typeBinary = 8
	typeList   = 9
	typeSet    = 10
	typeMap    = 11
	typeStruct = 12
)

func (s *skimmer) structure(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("metadata is nested deeper than %d", maxDepth)
	}
	for {
		header, err := s.byte()
		if err != nil {
			return err
		}
		if header == typeStop {
			return nil
		}
		if header>>4 == 0 { // the field's number does not fit beside the type
			if _, err := s.varint(); err != nil {
				return err
			}
		}
		if t := header & 15; t != typeTrue && t != typeFalse { // those are the value
			if err := s.value(t, depth); err != nil {
				return err
			}
		}
	}
}

func (s *skimmer) value(t byte, depth int) error {
	switch t {
	case typeTrue, typeFalse, typeByte: // in a list a boolean is a byte
		return s.skip(1)
	case typeI16, typeI32, typeI64:
		_, err := s.varint()
		return err
	case typeDouble:
		return s.skip(8)
	case typeBinary:
		n, err := s.varint()
		if err != nil {
			return err
		}
		return s.skip(n)
	case typeList, typeSet:
		return s.list(depth + 1)
	case typeStruct:
		return s.structure(depth + 1)
	}
	return fmt.Errorf("metadata has a value of type %d, which Parquet does not use", t)
}

func (s *skimmer) list(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("metadata is nested deeper than %d", maxDepth)
	}
	header, err := s.byte()
	if err != nil {
		return err
	}
	n := uint64(header >> 4)
	if n == 15 {
		if n, err = s.varint(); err != nil {
			return err
		}
	}
	if n > uint64(len(s.b)-s.at) { // every element takes at least a byte
		return errCutOff
	}
	for range n {
		if err := s.value(header&15, depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *skimmer) byte() (byte, error) {
	if s.at == len(s.b) {
		return 0, errCutOff
	}
	s.at++
	return s.b[s.at-1], nil
}

func (s *skimmer) varint() (uint64, error) {
	v, n := binary.Uvarint(s.b[s.at:])
	if n == 0 {
		return 0, errCutOff
	}
	if n < 0 {
		return 0, errors.New("metadata has a number of more than 64 bits")
	}
	s.at += n
	return v, nil
}

func (s *skimmer) skip(n uint64) error {
	if n > uint64(len(s.b)-s.at) {
		return errCutOff
	}
	s.at += int(n)
	return nil
}
