package main

import (
	"fmt"
	"math/rand"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A run sends every request to both sides, one at a time, so that both keep the same history.
type run struct {
	etcd, engram *side
	rules        rules
	random       *rand.Rand
	tamper       string  // an RPC whose answers of one side are altered on purpose
	forger       *forger // alters one answer of Engram's to each RPC; nil: none
	selfTest     bool    // also compare altered copies of every answer
	verbose      bool

	passed, failed int
	printed        int
	table          *table
	checks         map[string]*tamperCount
}

// A tamperCount says how many single alterations of an RPC's answers were made and how many were noticed.
type tamperCount struct{ made, caught int }

const printedMax = 60

func (r *run) report(name, rpc string, what string, differences []string) {
	known := r.rules.find("differs", name)
	if known != nil {
		if len(differences) > 0 {
			r.passed++
			return
		}
		differences = []string{"listed as a known difference, but both answer alike"}
	}
	if len(differences) == 0 {
		r.passed++
		if r.verbose {
			fmt.Printf("ok     %s\n", name)
		}
		return
	}
	r.failed++
	if r.printed++; r.printed > printedMax {
		return
	}
	fmt.Printf("FAILED %s (%s)\n       request: %s\n", name, rpc, what)
	for i, d := range differences {
		if i == 8 {
			fmt.Printf("       ... %d more\n", len(differences)-i)
			break
		}
		fmt.Printf("       %s\n", d)
	}
}

// broken counts a check that could not be made as a failure.
func (r *run) broken(name string, err error) {
	r.failed++
	fmt.Printf("FAILED %s: %v\n", name, err)
}

// settle compares two outcomes of one request and enters them in the table.
func (r *run) settle(name, rpc string, requests []proto.Message, a, b outcome) {
	forged := r.forger.disarm(rpc)
	for _, q := range requests {
		r.table.request(rpc, q)
	}
	r.table.outcome(rpc, a)
	if r.tamper == rpc {
		b = tamperFirst(r.rules, rpc, b)
	}
	texts := make([]string, len(requests))
	for i, q := range requests {
		texts[i] = shorten(q)
	}
	differences := compareOutcomes(r.rules, rpc, a, b)
	if forged {
		r.judgeForged(name, rpc, differences)
		return
	}
	r.report(name, rpc, strings.Join(texts, "; "), differences)
	if r.selfTest && len(differences) == 0 {
		r.checkTampering(rpc, a)
	}
}

// judgeForged wants an altered answer to be noticed.
func (r *run) judgeForged(name, rpc string, differences []string) {
	if len(differences) == 0 {
		r.broken(name, fmt.Errorf("an altered answer to %s went unnoticed", rpc))
		return
	}
	r.passed++
	fmt.Printf("altered %s: %s: %s\n", rpc, name, differences[0])
}

// both makes a call whose request is the same for the two sides.
func (r *run) both(name, rpc string, request proto.Message) (outcome, outcome) {
	return r.bothOf(name, rpc, func(*side) proto.Message { return request })
}

// bothOf makes a call whose request names something that only one side has, such as a member.
func (r *run) bothOf(name, rpc string, request func(*side) proto.Message) (outcome, outcome) {
	a, err := r.etcd.call(rpc, request(r.etcd))
	if err != nil {
		r.broken(name, err)
		return a, outcome{}
	}
	r.forger.arm(rpc)
	b, err := r.engram.call(rpc, request(r.engram))
	if err != nil {
		r.broken(name, err)
		return a, b
	}
	r.settle(name, rpc, []proto.Message{request(r.etcd)}, r.etcd.mapped(a), r.engram.mapped(b))
	return a, b
}

func (r *run) bothExchange(name, rpc string, requests ...proto.Message) {
	a, err := r.etcd.exchange(rpc, requests)
	if err != nil {
		r.broken(name, err)
		return
	}
	r.forger.arm(rpc)
	b, err := r.engram.exchange(rpc, requests)
	if err != nil {
		r.broken(name, err)
		return
	}
	r.settle(name, rpc, requests, a, b)
}

func (r *run) bothHTTP(name, method, path, body string, headers map[string]string) {
	a, err := r.etcd.http(method, path, body, headers)
	if err != nil {
		r.broken(name, err)
		return
	}
	b, err := r.engram.http(method, path, body, headers)
	if err != nil {
		r.broken(name, err)
		return
	}
	rpc := "HTTP " + method + " " + strings.SplitN(path, "?", 2)[0]
	if r.tamper == "HTTP" {
		b.body = strings.Replace(b.body, "1", "2", 1) + " "
		b.status++
	}
	if r.forger != nil && !r.forger.forged[rpc] && r.rules.find("text", name) == nil && r.rules.find("differs", name) == nil {
		r.forger.forged[rpc] = true
		b.body = alteredBody(b.body)
		r.judgeForged(name, rpc, compareHTTP(r.rules, name, a, b))
		return
	}
	r.table.http(rpc, a.status)
	r.report(name, rpc, method+" "+path+" "+body, compareHTTP(r.rules, name, a, b))
}

// mapped replaces this side's own addresses in every string of the responses.
func (s *side) mapped(o outcome) outcome {
	out := o
	out.responses = nil
	for _, m := range o.responses {
		m = proto.Clone(m)
		s.mapStrings(m.ProtoReflect())
		out.responses = append(out.responses, m)
	}
	return out
}

func (s *side) mapStrings(m protoreflect.Message) {
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.IsMap():
		case d.IsList():
			list := v.List()
			for i := 0; i < list.Len(); i++ {
				if d.Message() != nil {
					s.mapStrings(list.Get(i).Message())
				} else if d.Kind() == protoreflect.StringKind {
					list.Set(i, protoreflect.ValueOfString(s.neutral(list.Get(i).String())))
				}
			}
		case d.Message() != nil:
			s.mapStrings(v.Message())
		case d.Kind() == protoreflect.StringKind:
			m.Set(d, protoreflect.ValueOfString(s.neutral(v.String())))
		}
		return true
	})
}

// alteredBody adds a field to a JSON object, and a letter to anything else.
func alteredBody(body string) string {
	if strings.HasPrefix(body, "{}") {
		return `{"altered":1` + body[1:]
	}
	if strings.HasPrefix(body, "{") {
		return `{"altered":1,` + body[1:]
	}
	return body + "?"
}
