package control

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Text makes a string fit for a message: what is no UTF-8 in it is replaced. Text of users can be anything, as an error about
// an element, and a message with a string that is no UTF-8 cannot be sent: its stream would break, each time anew.
func Text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Sendable makes every string of a message fit for it. Who sends calls it for each message.
func Sendable[M proto.Message](m M) M {
	makeSendable(m.ProtoReflect())
	return m
}

func makeSendable(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			mapSendable(f, v.Map())
		case f.IsList():
			list := v.List()
			for i := range list.Len() {
				if fit, changed := valueSendable(f.Kind(), list.Get(i)); changed {
					list.Set(i, fit)
				}
			}
		default:
			if fit, changed := valueSendable(f.Kind(), v); changed {
				m.Set(f, fit)
			}
		}
		return true
	})
}

// mapSendable mends keys and values. Of keys that become the same one stays.
func mapSendable(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	type entry struct {
		key   protoreflect.MapKey
		value protoreflect.Value
	}
	var wrong []protoreflect.MapKey
	var mended []entry
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		fit, changed := valueSendable(f.MapValue().Kind(), v)
		key := k
		if f.MapKey().Kind() == protoreflect.StringKind && !utf8.ValidString(k.String()) {
			key, changed = protoreflect.ValueOfString(Text(k.String())).MapKey(), true
			wrong = append(wrong, k)
		}
		if changed {
			mended = append(mended, entry{key, fit})
		}
		return true
	})
	for _, k := range wrong {
		m.Clear(k)
	}
	for _, e := range mended {
		m.Set(e.key, e.value)
	}
}

// valueSendable returns another value, and true, if v has to be replaced. What is in a message is changed in place.
func valueSendable(kind protoreflect.Kind, v protoreflect.Value) (protoreflect.Value, bool) {
	switch kind {
	case protoreflect.StringKind:
		if s := v.String(); !utf8.ValidString(s) {
			return protoreflect.ValueOfString(Text(s)), true
		}
	case protoreflect.MessageKind:
		makeSendable(v.Message())
	}
	return v, false
}
