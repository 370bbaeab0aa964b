package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"reflect"
	"sort"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A rule of masks.txt; see there for the form.
type rule struct {
	kind, pattern, how, reason string
	used                       int
}

type rules []*rule

func readRules(file string) (rules, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all rules
	scanner := bufio.NewScanner(f)
	for number := 1; scanner.Scan(); number++ {
		text, reason, found := strings.Cut(scanner.Text(), " # ")
		words := strings.Fields(text)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		r := &rule{kind: words[0], reason: reason}
		wanted := map[string]int{"mask": 3, "json": 3, "header": 3, "text": 2, "differs": 2, "later": 2, "never": 2, "metric": 2}[r.kind]
		if !found || reason == "" || wanted != len(words) {
			return nil, fmt.Errorf("%s:%d: not a rule with its reason", file, number)
		}
		r.pattern = words[1]
		if wanted == 3 {
			r.how = words[2]
		}
		all = append(all, r)
	}
	return all, scanner.Err()
}

// find gives the first rule of a kind whose pattern fits the name, and counts the use.
func (all rules) find(kind, name string) *rule {
	for _, r := range all {
		if r.kind != kind {
			continue
		}
		if fits, err := path.Match(r.pattern, name); err == nil && fits {
			r.used++
			return r
		}
	}
	return nil
}

// A comparer lists the differences of two outcomes.
type comparer struct {
	rules rules
	rpc   string
	out   []string
}

func (c *comparer) add(where string, a, b any) {
	c.out = append(c.out, fmt.Sprintf("%s: etcd %s, engram %s", where, shorten(a), shorten(b)))
}

func shorten(v any) string {
	text := fmt.Sprintf("%v", v)
	if b, ok := v.([]byte); ok {
		text = fmt.Sprintf("%q", b)
	}
	if len(text) > 300 {
		text = text[:300] + fmt.Sprintf("... (%d bytes)", len(text))
	}
	return text
}

func compareOutcomes(all rules, rpc string, a, b outcome) []string {
	c := &comparer{rules: all, rpc: rpc}
	if a.code != b.code {
		c.add("code", a.code+" "+a.message, b.code+" "+b.message)
	} else if a.message != b.message && all.find("text", rpc+"/"+a.code) == nil {
		c.add("message", a.message, b.message)
	}
	if !reflect.DeepEqual(a.notes, b.notes) {
		c.add("stream", a.notes, b.notes)
	}
	if len(a.responses) != len(b.responses) {
		c.add("number of responses", len(a.responses), len(b.responses))
		return c.out
	}
	for i := range a.responses {
		c.message("", order(a.responses[i]).ProtoReflect(), order(b.responses[i]).ProtoReflect())
	}
	return c.out
}

// order sorts lists whose order is not promised or follows the masked ids.
func order(m proto.Message) proto.Message {
	members := func(list []*pb.Member) {
		sort.Slice(list, func(i, j int) bool {
			return fmt.Sprint(list[i].Name, list[i].PeerURLs) > fmt.Sprint(list[j].Name, list[j].PeerURLs)
		})
	}
	m = proto.Clone(m)
	switch m := m.(type) {
	case *pb.MemberListResponse:
		members(m.Members)
	case *pb.MemberAddResponse:
		members(m.Members)
	case *pb.MemberRemoveResponse:
		members(m.Members)
	case *pb.MemberUpdateResponse:
		members(m.Members)
	case *pb.LeaseTimeToLiveResponse:
		sort.Slice(m.Keys, func(i, j int) bool { return string(m.Keys[i]) < string(m.Keys[j]) })
	case *pb.LeaseLeasesResponse:
		sort.Slice(m.Leases, func(i, j int) bool { return m.Leases[i].ID < m.Leases[j].ID })
	case *pb.StatusResponse:
		// The blanks in these texts are not stable from one build of etcd to the next.
		for i, text := range m.Errors {
			m.Errors[i] = strings.Join(strings.Fields(text), " ")
		}
		sort.Strings(m.Errors)
	case *pb.AlarmResponse:
		sort.Slice(m.Alarms, func(i, j int) bool { return fmt.Sprint(m.Alarms[i]) < fmt.Sprint(m.Alarms[j]) })
	}
	return m
}

func (c *comparer) mask(d protoreflect.FieldDescriptor) *rule {
	name := string(d.Parent().Name()) + "." + string(d.Name())
	if r := c.rules.find("mask", c.rpc+":"+name); r != nil {
		return r
	}
	return c.rules.find("mask", name)
}

// message compares every field that the schema names, set or not, and what the schema does not know.
func (c *comparer) message(at string, a, b protoreflect.Message) {
	if string(a.GetUnknown()) != string(b.GetUnknown()) {
		c.add(at+"unknown fields", []byte(a.GetUnknown()), []byte(b.GetUnknown()))
	}
	fields := a.Descriptor().Fields()
	for i := 0; i < fields.Len(); i++ {
		c.field(at+string(fields.Get(i).Name()), fields.Get(i), a, b)
	}
}

func (c *comparer) field(at string, d protoreflect.FieldDescriptor, a, b protoreflect.Message) {
	if a.Has(d) != b.Has(d) {
		if r := c.mask(d); r == nil || r.how != "ignore" {
			c.add(at, valueText(a, d), valueText(b, d))
		}
		return
	}
	if !a.Has(d) {
		return
	}
	if r := c.mask(d); r != nil {
		if r.how == "near" && absDiff(a.Get(d).Int(), b.Get(d).Int()) > 2 {
			c.add(at, valueText(a, d), valueText(b, d))
		}
		return
	}
	switch {
	case d.IsMap():
		a.Get(d).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			if other := b.Get(d).Map().Get(k); !other.IsValid() || !v.Equal(other) {
				c.add(at, valueText(a, d), valueText(b, d))
			}
			return true
		})
		if a.Get(d).Map().Len() != b.Get(d).Map().Len() {
			c.add(at, valueText(a, d), valueText(b, d))
		}
	case d.IsList():
		x, y := a.Get(d).List(), b.Get(d).List()
		if x.Len() != y.Len() {
			c.add(at+" length", fmt.Sprintf("%d %s", x.Len(), valueText(a, d)), fmt.Sprintf("%d %s", y.Len(), valueText(b, d)))
			return
		}
		for i := 0; i < x.Len(); i++ {
			place := fmt.Sprintf("%s[%d]", at, i)
			if d.Message() != nil {
				c.message(place+".", x.Get(i).Message(), y.Get(i).Message())
			} else if !x.Get(i).Equal(y.Get(i)) {
				c.add(place, x.Get(i), y.Get(i))
			}
		}
	case d.Message() != nil:
		c.message(at+".", a.Get(d).Message(), b.Get(d).Message())
	default:
		if !a.Get(d).Equal(b.Get(d)) {
			c.add(at, valueText(a, d), valueText(b, d))
		}
	}
}

func valueText(m protoreflect.Message, d protoreflect.FieldDescriptor) string {
	if !m.Has(d) {
		return "not set"
	}
	if d.Kind() == protoreflect.BytesKind && !d.IsList() {
		return fmt.Sprintf("%q", m.Get(d).Bytes())
	}
	return shorten(m.Get(d).String())
}

func absDiff(a, b int64) int64 {
	if a > b {
		return a - b
	}
	return b - a
}

func compareHTTP(all rules, name string, a, b httpAnswer) []string {
	c := &comparer{rules: all, rpc: name}
	if a.status != b.status {
		c.add("HTTP status", a.status, b.status)
	}
	names := map[string]bool{}
	for n := range a.headers {
		names[n] = true
	}
	for n := range b.headers {
		names[n] = true
	}
	for _, n := range sortedKeys(names) {
		if x, y := a.headers[n], b.headers[n]; all.find("header", n) == nil && !reflect.DeepEqual(x, y) {
			c.add("header "+n, x, y)
		}
	}
	if all.find("text", name) != nil {
		return c.out
	}
	x, xerr := decodeJSON(a.body)
	y, yerr := decodeJSON(b.body)
	if xerr == nil && yerr == nil && len(x) == len(y) {
		for i := range x {
			c.json("body", x[i], y[i])
		}
	} else if a.body != b.body && sortedLines(a.body) != sortedLines(b.body) { // health checks end in any order
		c.add("body", a.body, b.body)
	}
	return c.out
}

// decodeJSON reads a body of any number of values, as streams give them.
func decodeJSON(text string) ([]any, error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var all []any
	for decoder.More() {
		var v any
		if err := decoder.Decode(&v); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func (c *comparer) json(at string, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok {
			c.add(at, a, b)
			return
		}
		names := map[string]bool{}
		for n := range x {
			names[n] = true
		}
		for n := range y {
			names[n] = true
		}
		for _, n := range sortedKeys(names) {
			_, inX := x[n]
			_, inY := y[n]
			r := c.rules.find("json", n)
			switch {
			case r != nil && r.how == "ignore":
			case inX != inY:
				c.add(at+"."+n, x[n], y[n])
			case r == nil:
				c.json(at+"."+n, x[n], y[n])
			case reflect.TypeOf(x[n]) != reflect.TypeOf(y[n]):
				c.add(at+"."+n+" type", x[n], y[n])
			}
		}
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			c.add(at, a, b)
			return
		}
		for i := range x {
			c.json(fmt.Sprintf("%s[%d]", at, i), x[i], y[i])
		}
	default:
		if !reflect.DeepEqual(a, b) {
			c.add(at, a, b)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

func sortedLines(text string) string {
	lines := strings.Split(text, "\n")
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
