package sdk

import (
	"reflect"

	"github.com/millstream/millstream/sdk/coder"
)

// copyOf copies a value by its coder.
func copyOf[A any](c coder.Coder[A], a A) (copied A, err error) {
	b, err := c.Append(nil, a)
	if err == nil {
		copied, _, err = c.Decode(b)
	}
	return copied, err
}

// hasPointers says whether copies of a t may share what changes. Strings do not change.
func hasPointers(t reflect.Type) bool {
	switch k := t.Kind(); k {
	case reflect.Array:
		return hasPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	default:
		return k > reflect.Complex128 && k != reflect.String
	}
}
