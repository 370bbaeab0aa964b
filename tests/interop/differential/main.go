// differential sends the same requests to an etcd and an Engram server, both new and single, and compares every answer field by
// field. See README.md.
package main

import (
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const unknownAlarmAction = "etcdserver: unknown alarm action"

func main() {
	etcd := flag.String("etcd", "", "HOST:PORT of the etcd server")
	engram := flag.String("engram", "", "HOST:PORT of the Engram server")
	masks := flag.String("masks", "masks.txt", "the list of what may differ")
	seed := flag.Int64("seed", time.Now().UnixNano(), "of the generated requests")
	requests := flag.Int("requests", 600, "how many requests to generate")
	tamper := flag.String("tamper", "", "alter Engram's answers to this RPC (or HTTP): the run has to fail; \"each\": one answer to each RPC and path, all of which have to be noticed")
	selfTest := flag.Bool("self-test", false, "also alter copies of the answers, each place for itself, and require that it is noticed")
	tablePrinted := flag.Bool("table", true, "print the table of hits")
	verbose := flag.Bool("v", false, "name passed cases too")
	only := flag.String("only", "", "run these groups alone, comma separated; hits are not judged then")
	flag.Parse()
	if *etcd == "" || *engram == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ok, err := compare(*etcd, *engram, *masks, *seed, *requests, *tamper, *only, *selfTest, *tablePrinted, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func compare(etcd, engram, masks string, seed int64, requests int, tamper, only string, selfTest, tablePrinted, verbose bool) (bool, error) {
	all, err := readRules(masks)
	if err != nil {
		return false, err
	}
	r := &run{rules: all, random: rand.New(rand.NewSource(seed)), tamper: tamper, selfTest: selfTest, verbose: verbose, checks: map[string]*tamperCount{}}
	if r.table, err = newTable(all); err != nil {
		return false, err
	}
	var engramOptions []grpc.DialOption
	if tamper == "each" {
		r.forger = &forger{rules: all, forged: map[string]bool{}}
		engramOptions = r.forger.options()
	} else if tamper != "" && tamper != "HTTP" && r.table.rows[tamper] == nil {
		return false, fmt.Errorf("no such RPC: %s", tamper)
	}
	if r.etcd, err = connect("etcd", etcd); err != nil {
		return false, err
	}
	if r.engram, err = connect("engram", engram, engramOptions...); err != nil {
		return false, err
	}
	for _, s := range []*side{r.etcd, r.engram} {
		if err := waitUntil(func() (bool, error) {
			o, err := s.call(rpcStatus, &pb.StatusRequest{})
			return err == nil && o.code == "OK" && strings.HasPrefix(o.responses[0].(*pb.StatusResponse).StorageVersion, "3.7"), err
		}); err != nil {
			return false, fmt.Errorf("%s: storage version: %w", s.name, err)
		}
	}
	fmt.Printf("seed %d\n", seed)
	groups := []struct {
		name string
		run  func()
	}{
		{"fresh", r.freshStore}, {"endpoints", r.endpoints}, {"puts", r.puts}, {"ranges", r.ranges}, {"txns", r.txns}, {"leases", r.leases}, {"fields", r.everyField},
		{"generated", func() { r.generated(requests) }}, {"watches", r.watches}, {"gateway", r.gateway}, {"compactions", r.compactions},
		{"compacted watches", r.compactedWatches}, {"maintenance", r.maintenance}, {"metrics", r.metrics}, {"deliberate", r.deliberate}, {"members", r.members},
	}
	for _, g := range groups {
		if only == "" || strings.Contains(","+only+",", ","+g.name+",") {
			g.run()
		}
	}
	if r.printed > printedMax {
		fmt.Printf("... %d more failures not shown\n", r.printed-printedMax)
	}
	if r.forger != nil {
		r.judgeForger()
	} else if only == "" {
		r.judge(tablePrinted)
	}
	fmt.Printf("%d passed, %d failed\n", r.passed, r.failed)
	return r.failed == 0, nil
}

// judge fails rows never hit, rules never used and alterations not noticed.
func (r *run) judge(tablePrinted bool) {
	missed := r.table.print(tablePrinted)
	for _, row := range missed {
		r.broken("never hit: "+row, fmt.Errorf("add a case, or a rule why it cannot be"))
	}
	for _, rule := range r.rules {
		if rule.used == 0 {
			r.broken("rule without use: "+rule.kind+" "+rule.pattern, fmt.Errorf("remove it"))
		}
	}
	if !r.selfTest {
		return
	}
	for _, rpc := range sortedKeys(r.table.rows) {
		if strings.HasPrefix(rpc, "HTTP") {
			continue
		}
		count := r.checks[rpc]
		if count == nil {
			r.broken("self-test of "+rpc, fmt.Errorf("no answer was altered"))
			continue
		}
		fmt.Printf("self-test %s: %d alterations, %d noticed\n", rpc, count.made, count.caught)
		if count.made != count.caught {
			r.broken("self-test of "+rpc, fmt.Errorf("%d alterations went unnoticed", count.made-count.caught))
		} else {
			r.passed++
		}
	}
}

// judgeForger fails RPCs of which no answer was altered.
func (r *run) judgeForger() {
	for _, rpc := range sortedKeys(r.table.rows) {
		if strings.HasPrefix(rpc, "HTTP") {
			continue
		}
		if !r.forger.forged[rpc] {
			r.broken("altered answers of "+rpc, fmt.Errorf("no answer was altered"))
		}
	}
	fmt.Printf("one answer altered to each of %d RPCs and paths\n", len(r.forger.forged))
}
