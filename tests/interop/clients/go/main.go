// Program main takes the Go client through keys, transactions, leases and
// watches on the endpoint given as argument, and prints "ok" only if every
// answer was right.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// check ends the program when a step was answered wrongly.
func check(right bool, format string, args ...any) {
	if !right {
		fmt.Fprintf(os.Stderr, "wrong: "+format+"\n", args...)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
	return value
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: client ENDPOINT")
		os.Exit(2)
	}
	// The client logs every refusal, also those that are asked for below.
	client := must(clientv3.New(clientv3.Config{
		Endpoints: []string{os.Args[1]}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	prefix := fmt.Sprintf("/interop/go/%d/", time.Now().UnixNano())

	keys(ctx, client, prefix+"kv/")
	transactions(ctx, client, prefix+"txn/")
	leases(ctx, client, prefix+"lease/")
	watches(ctx, client, prefix+"watch/")
	must(client.Delete(ctx, prefix, clientv3.WithPrefix()))
	fmt.Println("ok")
}

func keys(ctx context.Context, c *clientv3.Client, prefix string) {
	a := prefix + "a"
	first := must(c.Put(ctx, a, "1")).Header.Revision
	got := must(c.Get(ctx, a))
	check(got.Count == 1 && len(got.Kvs) == 1, "get of one key: %v", got)
	kv := got.Kvs[0]
	check(string(kv.Key) == a && string(kv.Value) == "1", "key and value: %v", kv)
	check(kv.CreateRevision == first && kv.ModRevision == first && kv.Version == 1, "revisions of a new key: %v", kv)

	second := must(c.Put(ctx, a, "2", clientv3.WithPrevKV()))
	check(second.Header.Revision == first+1, "revision after a second put: %v", second.Header)
	check(second.PrevKv != nil && string(second.PrevKv.Value) == "1", "previous value: %v", second.PrevKv)
	kv = must(c.Get(ctx, a)).Kvs[0]
	check(kv.CreateRevision == first && kv.ModRevision == first+1 && kv.Version == 2, "revisions of a changed key: %v", kv)
	kv = must(c.Get(ctx, a, clientv3.WithRev(first))).Kvs[0]
	check(string(kv.Value) == "1" && kv.Version == 1, "value of an earlier revision: %v", kv)
	_, err := c.Get(ctx, a, clientv3.WithRev(first+1000))
	check(err != nil, "a future revision was answered")

	for _, name := range []string{"b", "c", "d"} {
		must(c.Put(ctx, prefix+name, name))
	}
	page := must(c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(2),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend)))
	check(page.Count == 4 && page.More && len(page.Kvs) == 2, "first page: %v", page)
	check(string(page.Kvs[0].Key) == prefix+"d" && string(page.Kvs[1].Key) == prefix+"c", "descending order: %v", page.Kvs)
	count := must(c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly()))
	check(count.Count == 4 && len(count.Kvs) == 0, "count only: %v", count)
	bare := must(c.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()))
	check(len(bare.Kvs) == 4 && len(bare.Kvs[0].Value) == 0, "keys only: %v", bare)

	deleted := must(c.Delete(ctx, prefix+"b", clientv3.WithRange(prefix+"d"), clientv3.WithPrevKV()))
	check(deleted.Deleted == 2 && len(deleted.PrevKvs) == 2, "deleted range: %v", deleted)
	check(string(deleted.PrevKvs[1].Value) == "c", "deleted values: %v", deleted.PrevKvs)
	check(must(c.Delete(ctx, prefix+"b")).Deleted == 0, "a deleted key was deleted again")
	check(must(c.Get(ctx, prefix+"c")).Count == 0, "a deleted key is still there")
}

func transactions(ctx context.Context, c *clientv3.Client, prefix string) {
	a, b := prefix+"a", prefix+"b"
	before := must(c.Put(ctx, a, "1")).Header.Revision
	done := must(c.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(a), "=", "1"), clientv3.Compare(clientv3.ModRevision(a), "=", before),
			clientv3.Compare(clientv3.Version(b), "=", 0)).
		Then(clientv3.OpPut(a, "2"), clientv3.OpPut(b, "3"), clientv3.OpGet(prefix, clientv3.WithPrefix())).
		Else(clientv3.OpGet(a)).Commit())
	check(done.Succeeded && len(done.Responses) == 3, "true comparison: %v", done)
	check(done.Header.Revision == before+1, "a transaction must be one revision: %v", done.Header)
	seen := done.Responses[2].GetResponseRange()
	check(seen != nil && len(seen.Kvs) == 2, "a read must see the writes before it: %v", seen)
	check(seen.Kvs[0].ModRevision == before+1 && seen.Kvs[1].ModRevision == before+1, "revisions in a transaction: %v", seen)

	done = must(c.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(a), "=", 0)).
		Then(clientv3.OpDelete(a)).Else(clientv3.OpGet(a)).Commit())
	check(!done.Succeeded && len(done.Responses) == 1, "false comparison: %v", done)
	check(string(done.Responses[0].GetResponseRange().Kvs[0].Value) == "2", "else branch: %v", done)
	check(done.Header.Revision == before+1, "a read only branch must not make a revision: %v", done.Header)
	_, err := c.Txn(ctx).Then(clientv3.OpPut(a, "x"), clientv3.OpPut(a, "y")).Commit()
	check(err != nil, "two writes of one key in a transaction were accepted")
}

func leases(ctx context.Context, c *clientv3.Client, prefix string) {
	long := must(c.Grant(ctx, 60))
	check(long.TTL == 60 && long.ID != 0, "granted lease: %v", long)
	must(c.Put(ctx, prefix+"long", "x", clientv3.WithLease(long.ID)))
	kv := must(c.Get(ctx, prefix+"long")).Kvs[0]
	check(kv.Lease == int64(long.ID), "lease of a key: %v", kv)
	left := must(c.TimeToLive(ctx, long.ID, clientv3.WithAttachedKeys()))
	check(left.GrantedTTL == 60 && left.TTL > 50 && left.TTL <= 60, "time to live: %v", left)
	check(len(left.Keys) == 1 && string(left.Keys[0]) == prefix+"long", "keys of a lease: %v", left)
	check(must(c.KeepAliveOnce(ctx, long.ID)).TTL == 60, "keep alive")
	found := false
	for _, lease := range must(c.Leases(ctx)).Leases {
		found = found || lease.ID == long.ID
	}
	check(found, "a granted lease is not listed")
	must(c.Revoke(ctx, long.ID))
	check(must(c.Get(ctx, prefix+"long")).Count == 0, "a revoked lease left its key")
	check(must(c.TimeToLive(ctx, long.ID)).TTL == -1, "a revoked lease still lives")
	_, err := c.Put(ctx, prefix+"long", "x", clientv3.WithLease(long.ID))
	check(err != nil, "a put with a revoked lease was accepted")

	// The server may lengthen a short lease, so its answer is the measure.
	short := must(c.Grant(ctx, 1))
	put := must(c.Put(ctx, prefix+"short", "x", clientv3.WithLease(short.ID)))
	granted := time.Now()
	events := c.Watch(ctx, prefix+"short", clientv3.WithRev(put.Header.Revision+1))
	check(must(c.Get(ctx, prefix+"short")).Count == 1, "a key with a live lease is absent")
	event := <-events
	lived := time.Since(granted)
	check(len(event.Events) == 1 && event.Events[0].Type == clientv3.EventTypeDelete, "expiry: %v", event)
	check(lived > time.Duration(short.TTL)*time.Second-500*time.Millisecond, "expired after %v instead of %d s", lived, short.TTL)
	check(must(c.Get(ctx, prefix+"short")).Count == 0, "an expired key is still there")
}

func watches(ctx context.Context, c *clientv3.Client, prefix string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	live := c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	check((<-live).Created, "the watch was not announced")
	first := must(c.Put(ctx, prefix+"a", "1")).Header.Revision
	must(c.Put(ctx, prefix+"a", "2"))
	must(c.Delete(ctx, prefix+"a"))
	must(c.Txn(ctx).Then(clientv3.OpPut(prefix+"b", "3"), clientv3.OpPut(prefix+"c", "4")).Commit())

	type change struct {
		kind, key, value, previous string
		revision                   int64
	}
	wanted := []change{
		{"PUT", "a", "1", "", first},
		{"PUT", "a", "2", "1", first + 1},
		{"DELETE", "a", "", "2", first + 2},
		{"PUT", "b", "3", "", first + 3},
		{"PUT", "c", "4", "", first + 3},
	}
	// The same changes must come from a watch that was there and from one that
	// starts in the past.
	past := c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(first))
	for name, events := range map[string]clientv3.WatchChan{"live": live, "past": past} {
		var seen []change
		for len(seen) < len(wanted) {
			response, open := <-events
			check(open && response.Err() == nil, "%s watch ended: %v", name, response.Err())
			for _, event := range response.Events {
				previous := ""
				if event.PrevKv != nil {
					previous = string(event.PrevKv.Value)
				}
				seen = append(seen, change{event.Type.String(), string(event.Kv.Key[len(prefix):]), string(event.Kv.Value),
					previous, event.Kv.ModRevision})
			}
		}
		for i := range wanted {
			check(seen[i] == wanted[i], "%s watch, event %d: %v instead of %v", name, i, seen[i], wanted[i])
		}
	}

	filtered := c.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(first), clientv3.WithFilterPut())
	event := (<-filtered).Events
	check(len(event) == 1 && event[0].Type == clientv3.EventTypeDelete, "filtered watch: %v", event)
}
