package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// The table counts, for each RPC, how often each field of its request and response was set and how often each error came.
// Rows come from the schema and from expectedErrors, so that what was never sent shows as a zero.
type table struct {
	rows map[string]map[string]int
}

var services = []string{"etcdserverpb.KV", "etcdserverpb.Watch", "etcdserverpb.Lease", "etcdserverpb.Cluster",
	"etcdserverpb.Maintenance", "grpc.health.v1.Health"}

// Nested transactions repeat the same messages without end.
const depthMax = 6

func newTable(all rules) (*table, error) {
	t := &table{rows: map[string]map[string]int{}}
	for _, service := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			return nil, err
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := 0; i < methods.Len(); i++ {
			m := methods.Get(i)
			rpc := service + "/" + string(m.Name())
			if all.find("later", rpc) != nil {
				continue
			}
			t.rows[rpc] = map[string]int{}
			t.fields(all, rpc, "request", m.Input(), map[string]bool{}, 0)
			t.fields(all, rpc, "response", m.Output(), map[string]bool{}, 0)
			for _, e := range expectedErrors[rpc] {
				t.rows[rpc]["error "+e] = 0
			}
		}
	}
	return t, nil
}

func (t *table) fields(all rules, rpc, kind string, d protoreflect.MessageDescriptor, seen map[string]bool, depth int) {
	if seen[string(d.FullName())] || depth > depthMax {
		return
	}
	seen[string(d.FullName())] = true
	for i := 0; i < d.Fields().Len(); i++ {
		f := d.Fields().Get(i)
		row := rowOf(kind, f)
		if all.find("never", rpc+":"+row) == nil {
			t.rows[rpc][row] += 0
		}
		if f.Message() != nil && !f.IsMap() {
			t.fields(all, rpc, kind, f.Message(), seen, depth+1)
		}
	}
}

func rowOf(kind string, f protoreflect.FieldDescriptor) string {
	return kind + "-" + string(f.Parent().Name()) + "." + string(f.Name())
}

func (t *table) request(rpc string, m proto.Message) { t.count(rpc, "request", m.ProtoReflect()) }

func (t *table) outcome(rpc string, o outcome) {
	for _, m := range o.responses {
		t.count(rpc, "response", m.ProtoReflect())
	}
	if o.code != "OK" && t.rows[rpc] != nil {
		t.rows[rpc]["error "+o.code+" "+o.message]++
	}
}

func (t *table) count(rpc, kind string, m protoreflect.Message) {
	if t.rows[rpc] == nil {
		return
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		t.rows[rpc][rowOf(kind, f)]++
		if f.Message() == nil || f.IsMap() {
			return true
		}
		if f.IsList() {
			for i := 0; i < v.List().Len(); i++ {
				t.count(rpc, kind, v.List().Get(i).Message())
			}
		} else {
			t.count(rpc, kind, v.Message())
		}
		return true
	})
}

func (t *table) http(what string, status int) {
	if t.rows[what] == nil {
		t.rows[what] = map[string]int{}
	}
	t.rows[what][fmt.Sprint("status ", status)]++
}

// print writes the table, if wanted, and gives the rows that nothing reached.
func (t *table) print(wanted bool) []string {
	var missed []string
	if wanted {
		fmt.Println("RPC | field or error | hits")
	}
	for _, rpc := range sortedKeys(t.rows) {
		for _, row := range sortedKeys(t.rows[rpc]) {
			hits := t.rows[rpc][row]
			if wanted {
				fmt.Printf("%s | %s | %d\n", rpc, strings.Replace(row, "-", " ", 1), hits)
			}
			if hits == 0 {
				missed = append(missed, rpc+":"+row)
			}
		}
	}
	return missed
}
