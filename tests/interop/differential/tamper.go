package main

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// How many altered copies of one answer are tried. The first answers of a kind reach all its fields.
const tamperMax = 200

// copyOf clones an outcome deeply enough to alter any part of it.
func copyOf(o outcome) outcome {
	out := o
	out.responses = nil
	for _, m := range o.responses {
		out.responses = append(out.responses, proto.Clone(m))
	}
	out.notes = append([]string(nil), o.notes...)
	return out
}

// alterations gives functions that each change one place: the code, the text, the number of responses, or one scalar that no
// mask covers, set or not. They apply to a copy of the outcome.
func alterations(all rules, rpc string, o outcome) []func(*outcome) {
	changes := []func(*outcome){
		func(x *outcome) { x.code += "?" },
		func(x *outcome) { x.responses = append(x.responses, nil) },
	}
	if all.find("text", rpc+"/"+o.code) == nil {
		changes = append(changes, func(x *outcome) { x.message += "?" })
	}
	c := &comparer{rules: all, rpc: rpc}
	for i, m := range o.responses {
		for _, change := range c.places(m.ProtoReflect(), func(x proto.Message) protoreflect.Message { return x.ProtoReflect() }) {
			changes = append(changes, func(x *outcome) { change(x.responses[i]) })
		}
	}
	return changes
}

// places walks one message; `reach` finds the same message inside a copy of the whole response.
func (c *comparer) places(m protoreflect.Message, reach func(proto.Message) protoreflect.Message) []func(proto.Message) {
	var changes []func(proto.Message)
	fields := m.Descriptor().Fields()
	for i := 0; i < fields.Len(); i++ {
		d := fields.Get(i)
		if c.mask(d) != nil || (d.ContainingOneof() != nil && !m.Has(d)) {
			continue
		}
		switch {
		case d.IsMap():
			m.Get(d).Map().Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
				changes = append(changes, func(x proto.Message) { reach(x).Mutable(d).Map().Clear(k) })
				return true
			})
		case d.IsList():
			list := m.Get(d).List()
			if list.Len() == 0 {
				continue
			}
			changes = append(changes, func(x proto.Message) { l := reach(x).Mutable(d).List(); l.Truncate(l.Len() - 1) })
			if d.Message() != nil {
				for n := 0; n < list.Len(); n++ {
					at := func(x proto.Message) protoreflect.Message { return reach(x).Mutable(d).List().Get(n).Message() }
					changes = append(changes, c.places(list.Get(n).Message(), at)...)
				}
			} else {
				changes = append(changes, func(x proto.Message) {
					l := reach(x).Mutable(d).List()
					l.Set(0, altered(d, l.Get(0)))
				})
			}
		case d.Message() != nil:
			if m.Has(d) {
				changes = append(changes, func(x proto.Message) { reach(x).Clear(d) })
				at := func(x proto.Message) protoreflect.Message { return reach(x).Mutable(d).Message() }
				changes = append(changes, c.places(m.Get(d).Message(), at)...)
			} else {
				changes = append(changes, func(x proto.Message) { reach(x).Mutable(d) })
			}
		default:
			changes = append(changes, func(x proto.Message) { r := reach(x); r.Set(d, altered(d, r.Get(d))) })
		}
	}
	return changes
}

func altered(d protoreflect.FieldDescriptor, v protoreflect.Value) protoreflect.Value {
	switch d.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(!v.Bool())
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(v.Enum() + 1)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(v.String() + "?")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(append(append([]byte(nil), v.Bytes()...), '?'))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(v.Uint()) + 1)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(v.Uint() + 1)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(int32(v.Int()) + 1)
	default:
		return protoreflect.ValueOfInt64(v.Int() + 1)
	}
}

// checkTampering alters copies of an answer place by place; the comparison has to notice each.
func (r *run) checkTampering(rpc string, o outcome) {
	count := r.checks[rpc]
	if count == nil {
		count = &tamperCount{}
		r.checks[rpc] = count
	}
	for i, change := range alterations(r.rules, rpc, o) {
		if i == tamperMax {
			break
		}
		x := copyOf(o)
		change(&x)
		count.made++
		if len(compareOutcomes(r.rules, rpc, o, x)) > 0 {
			count.caught++
		}
	}
}

// tamperFirst alters the last place that can be altered, which is a field if the answer has any.
func tamperFirst(all rules, rpc string, o outcome) outcome {
	x := copyOf(o)
	changes := alterations(all, rpc, o)
	changes[len(changes)-1](&x)
	return x
}
