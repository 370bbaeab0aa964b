package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

const rpcWatch = "etcdserverpb.Watch/Watch"

func waitUntil(condition func() (bool, error)) error {
	for end := time.Now().Add(callLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done, err := condition(); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("not within %v", callLimit)
}

// A session is one watch stream of one side.
type session struct {
	side     *side
	stream   pb.Watch_WatchClient
	requests []proto.Message

	barrierAt int64 // the revision of the barrier's put

	mutex    sync.Mutex
	got      []*pb.WatchResponse
	arrived  chan struct{} // one signal at a time; buffered
	finished error
}

func (s *side) watch(ctx context.Context) (*session, error) {
	stream, err := pb.NewWatchClient(s.conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	w := &session{side: s, stream: stream, arrived: make(chan struct{}, 1)}
	go func() {
		for {
			response, err := stream.Recv()
			w.mutex.Lock()
			if err != nil {
				w.finished = err
			} else {
				w.got = append(w.got, response)
			}
			w.mutex.Unlock()
			select {
			case w.arrived <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	return w, nil
}

// until waits for responses that fulfil the condition.
func (w *session) until(what string, limit time.Duration, condition func([]*pb.WatchResponse) bool) error {
	timeout := time.After(limit)
	for {
		w.mutex.Lock()
		done, finished, have := condition(w.got), w.finished, len(w.got)
		w.mutex.Unlock()
		if done {
			return nil
		}
		if finished != nil {
			return fmt.Errorf("%s: the stream ended while waiting for %s: %w", w.side.name, what, finished)
		}
		select {
		case <-w.arrived:
		case <-timeout:
			return fmt.Errorf("%s: no %s within %v, %d responses so far", w.side.name, what, limit, have)
		}
	}
}

// items counts what one watcher got: answers without events count once, else each event.
func items(all []*pb.WatchResponse, id int64) int {
	n := 0
	for _, r := range all {
		if r.WatchId == id {
			n += max(1, len(r.Events))
		}
	}
	return n
}

type act func(*session) error

func (w *session) send(q *pb.WatchRequest) error {
	w.requests = append(w.requests, q)
	return w.stream.Send(q)
}

// create asks for a watcher and waits for the answer, since its place among events of others is not promised.
func create(q *pb.WatchCreateRequest) act {
	return func(w *session) error {
		w.mutex.Lock()
		before := created(w.got)
		w.mutex.Unlock()
		if err := w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: q}}); err != nil {
			return err
		}
		return w.until("created answer", callLimit, func(all []*pb.WatchResponse) bool { return created(all) > before })
	}
}

func created(all []*pb.WatchResponse) (n int) {
	for _, r := range all {
		if r.Created {
			n++
		}
	}
	return n
}

func cancelWatch(id int64) act {
	return func(w *session) error {
		return w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
	}
}

func raw(q *pb.WatchRequest) act { return func(w *session) error { return w.send(q) } }

// progress asks until there is an answer, because a request is dropped while any watcher is behind.
func progress() act {
	return func(w *session) error {
		w.mutex.Lock()
		before := items(w.got, -1)
		w.mutex.Unlock()
		var err error
		for i := 0; i < 40; i++ {
			if err := w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}); err != nil {
				return err
			}
			err = w.until("progress answer", 500*time.Millisecond, func(all []*pb.WatchResponse) bool { return items(all, -1) > before })
			if err == nil {
				return nil
			}
		}
		return err
	}
}

// await waits until the watcher has this many items since the stream began.
func await(id int64, n int) act {
	return func(w *session) error {
		return w.until(fmt.Sprintf("item %d of watcher %d", n, id), callLimit, func(all []*pb.WatchResponse) bool { return items(all, id) >= n })
	}
}

func do(rpc string, q proto.Message) act {
	return func(w *session) error {
		o, err := w.side.call(rpc, q)
		if err == nil && o.code != "OK" {
			err = fmt.Errorf("%s: %s: %s %s", w.side.name, rpc, o.code, o.message)
		}
		return err
	}
}

const (
	barrierID  = 424242
	barrierKey = "~barrier"
)

// barrier makes sure that everything sent so far was delivered: a watcher of its own sees a key put last.
func barrier(w *session) error {
	if err := create(&pb.WatchCreateRequest{Key: []byte(barrierKey), WatchId: barrierID})(w); err != nil {
		return err
	}
	o, err := w.side.call(rpcPut, putOf(barrierKey, ""))
	if err != nil || o.code != "OK" {
		return fmt.Errorf("%s: barrier: %s %w", w.side.name, o.message, err)
	}
	w.barrierAt = o.responses[0].(*pb.PutResponse).Header.Revision
	return await(barrierID, 2)(w)
}

// sorted gives what each watcher got, in order, one watcher after the other. Progress answers are asked for until one comes, so
// repeated ones count once. Where the cut into responses depends on timing, events are joined.
func (w *session) sorted(joined bool) []proto.Message {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	byID := map[int64][]*pb.WatchResponse{}
	var ids []int64
	for _, r := range w.got {
		list := byID[r.WatchId]
		if list == nil {
			ids = append(ids, r.WatchId)
		}
		r = proto.Clone(r).(*pb.WatchResponse)
		// The barrier's own put may or may not have reached the others.
		if r.WatchId != barrierID && len(r.Events) > 0 && string(r.Events[0].Kv.Key) == barrierKey && r.Header.Revision >= w.barrierAt {
			continue
		}
		if n := len(list); n > 0 {
			last := list[n-1]
			if r.WatchId == -1 && !r.Created && proto.Equal(last, r) {
				continue
			}
			if joined && len(last.Events) > 0 && len(r.Events) > 0 {
				last.Events = append(last.Events, r.Events...)
				last.Header.Revision = max(last.Header.Revision, r.Header.Revision)
				continue
			}
		}
		byID[r.WatchId] = append(list, r)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	var all []proto.Message
	for _, id := range ids {
		for _, r := range byID[id] {
			all = append(all, r)
		}
	}
	return all
}

func (r *run) watchScript(name string, joined bool, acts ...act) {
	var outcomes [2]outcome
	var requests []proto.Message
	for i, s := range []*side{r.etcd, r.engram} {
		if s == r.engram {
			r.forger.arm(rpcWatch)
		}
		err := func() error {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			w, err := s.watch(ctx)
			if err != nil {
				return err
			}
			for _, a := range append(acts, barrier) {
				if err := a(w); err != nil {
					return err
				}
			}
			outcomes[i] = outcome{code: "OK", responses: w.sorted(joined)}
			requests = w.requests
			return nil
		}()
		if err != nil {
			r.broken("watch: "+name, err)
			// The other side still has to get the same writes.
			continue
		}
	}
	if outcomes[0].code != "" && outcomes[1].code != "" {
		r.settle("watch: "+name, rpcWatch, requests, outcomes[0], outcomes[1])
	}
}

func (r *run) watches() {
	type c = pb.WatchCreateRequest
	key := func(k string) []byte { return []byte(k) }
	a, _ := r.both("watch: where we are", rpcRange, rangeOf("k1", ""))
	start := a.responses[0].(*pb.RangeResponse).Header.Revision
	put := func(k, v string) act { return do(rpcPut, putOf(k, v)) }

	r.watchScript("one key, live", false, create(&c{Key: key("w/1")}), put("w/1", "a"), await(0, 2), put("w/2", "b"), put("w/1", "c"), await(0, 3),
		do(rpcDelete, deleteOf("w/1", "")), await(0, 4), cancelWatch(0), await(0, 5), put("w/1", "after"))
	r.watchScript("prefix with previous values", false, create(&c{Key: key("w/"), RangeEnd: key("w0"), PrevKv: true}),
		put("w/1", "a"), await(0, 2), do(rpcTxn, doing(opPut(putOf("w/2", "x")), opPut(putOf("w/1", "y")), opDelete(deleteOf("w/3", "")), opRange(rangeOf("w/1", "")))), await(0, 4),
		do(rpcDelete, deleteOf("w/", "w0")), await(0, 6), put("w/1", "new"), await(0, 7))
	r.watchScript("filters", false, create(&c{Key: key("f"), Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NOPUT}}),
		create(&c{Key: key("f"), Filters: []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}, PrevKv: true}),
		create(&c{Key: key("f"), Filters: []pb.WatchCreateRequest_FilterType{0, 1}}),
		create(&c{Key: key("f"), Filters: []pb.WatchCreateRequest_FilterType{7}}),
		put("f", "1"), await(1, 2), await(3, 2), do(rpcDelete, deleteOf("f", "")), await(0, 2), await(3, 3))
	r.watchScript("ids", false, create(&c{Key: key("i")}), create(&c{Key: key("i"), WatchId: 5}), create(&c{Key: key("i"), WatchId: 5}),
		create(&c{Key: key("i"), WatchId: -7}), create(&c{Key: key("i"), WatchId: 1}), create(&c{Key: key("i")}),
		put("i", "1"), await(0, 2), await(5, 2), await(-7, 2), await(1, 2), await(2, 2), cancelWatch(5), await(5, 3), cancelWatch(5), cancelWatch(99),
		create(&c{Key: key("i"), WatchId: 5}), put("i", "2"), await(5, 5))
	r.watchScript("refusals", false, create(&c{Key: key("b"), RangeEnd: key("a")}), create(&c{Key: key("b"), RangeEnd: key("b")}),
		create(&c{Key: key("b"), StartRevision: -1}), create(&c{Key: key("b"), RangeEnd: key("a"), StartRevision: -1}), create(&c{Key: key("b")}))
	r.watchScript("everything", false, create(&c{RangeEnd: key("\x00")}), put("e", "1"), await(0, 2), do(rpcTxn, doing(opPut(putOf("e1", "1")), opPut(putOf("e2", "1")))), await(0, 4))
	r.watchScript("empty key alone", false, create(&c{}), put("\x00", "1"), await(0, 2), do(rpcDelete, deleteOf("\x00", "")), await(0, 3))
	r.watchScript("from a key on", false, create(&c{Key: key("x"), RangeEnd: key("\x00")}), put("w", "1"), put("x", "1"), await(0, 2), put("xx", "1"), await(0, 3))
	r.watchScript("nothing asked", false, raw(&pb.WatchRequest{}), raw(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}))
	r.watchScript("progress", false, create(&c{Key: key("p"), ProgressNotify: true}), progress(), put("p", "1"), await(0, 2), progress())
	r.watchScript("history", true, create(&c{Key: key("w/"), RangeEnd: key("w0"), StartRevision: start, PrevKv: true}), await(0, 12))
	r.watchScript("history of everything", true, create(&c{RangeEnd: key("\x00"), StartRevision: start + 1, PrevKv: true}), await(0, 12))
	r.watchScript("history of everything from revision 1", true, create(&c{RangeEnd: key("\x00"), StartRevision: 1}), await(0, int(start)))
	r.watchScript("history without puts", true, create(&c{Key: key("w/"), RangeEnd: key("w0"), StartRevision: start, Filters: []pb.WatchCreateRequest_FilterType{0}}), await(0, 3))

	now, _ := r.both("watch: where we are now", rpcRange, rangeOf("k1", ""))
	current := now.responses[0].(*pb.RangeResponse).Header.Revision
	r.watchScript("start in the future", false, create(&c{Key: key("later"), StartRevision: current + 3}), put("later", "1"), put("later", "2"), put("later", "3"), await(0, 2),
		put("later", "4"), await(0, 3))
	// One revision that is too large for one response, because the previous values are in it. Where history is cut between
	// revisions depends on each server's buffers.
	big := strings.Repeat("x", 400000)
	three := do(rpcTxn, doing(opPut(putOf("big/1", big)), opPut(putOf("big/2", big)), opPut(putOf("big/3", big))))
	r.watchScript("fragments", false, three, three, create(&c{Key: key("big/"), RangeEnd: key("big0"), StartRevision: current + 7, Fragment: true, PrevKv: true}), await(0, 4))
	r.watchScript("no fragments", false, create(&c{Key: key("big/"), RangeEnd: key("big0"), StartRevision: current + 7, PrevKv: true}), await(0, 4), do(rpcDelete, deleteOf("big/", "big0")), await(0, 7))
	r.watchScript("lease revoked", false, create(&c{Key: key("wl/"), RangeEnd: key("wl0"), PrevKv: true}), do(rpcGrant, &pb.LeaseGrantRequest{ID: 77, TTL: 1000}),
		do(rpcPut, &pb.PutRequest{Key: key("wl/2"), Lease: 77}), await(0, 2), do(rpcPut, &pb.PutRequest{Key: key("wl/1"), Lease: 77}), await(0, 3), do(rpcRevoke, &pb.LeaseRevokeRequest{ID: 77}), await(0, 5))
	r.watchScript("lease expired", false, create(&c{Key: key("wl/"), RangeEnd: key("wl0")}), do(rpcGrant, &pb.LeaseGrantRequest{ID: 78, TTL: 1}),
		do(rpcPut, &pb.PutRequest{Key: key("wl/2"), Lease: 78}), await(0, 2), await(0, 3))

	// Random writes seen by several watchers at once.
	for n := 0; n < 4; n++ {
		acts := []act{create(&c{Key: key("a"), RangeEnd: key("z"), PrevKv: true}), create(&c{Key: key("b"), RangeEnd: key("d")}), create(&c{Key: key("c"), PrevKv: true})}
		for i := 0; i < 30; i++ {
			k := pick(r, someKeys)
			if r.chance(70) {
				acts = append(acts, do(rpcPut, &pb.PutRequest{Key: key(k), Value: r.someValue()}))
			} else {
				acts = append(acts, do(rpcDelete, deleteOf(k, pick(r, []string{"", "", k + "z"}))))
			}
		}
		r.watchScript(fmt.Sprintf("random %d", n), true, append(acts, create(&c{RangeEnd: key("\x00"), StartRevision: current}), progress())...)
	}
}

// compactedWatches runs after compactions().
func (r *run) compactedWatches() {
	type c = pb.WatchCreateRequest
	status, _ := r.both("watch: where we are after compaction", rpcRange, rangeOf("k1", ""))
	current := status.responses[0].(*pb.RangeResponse).Header.Revision
	r.watchScript("compacted start", false, create(&c{Key: []byte("k1"), StartRevision: 2}), await(0, 2))
	r.watchScript("start at the compacted revision", false, create(&c{RangeEnd: []byte("\x00"), StartRevision: current, PrevKv: true}), await(0, 2))
	r.watchScript("compacted under the next watcher", false, do(rpcPut, putOf("k1", "1")), do(rpcPut, putOf("k1", "2")), do(rpcDelete, deleteOf("k1", "")),
		do(rpcCompact, &pb.CompactionRequest{Revision: current + 3, Physical: true}),
		// The barrier of the script before put one more revision.
		create(&c{Key: []byte("k1"), StartRevision: current + 1}), await(0, 2))
}
