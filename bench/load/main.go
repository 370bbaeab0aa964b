// load is the client of bench/compare where h2load and etcd's own benchmark do not do: it fills a store with many keys, puts at a
// steady rate while something else happens, watches with many watchers and checks what arrives, and reads large ranges. Each
// command prints one line of JSON. See ../README.md.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

var (
	endpoint   = flag.String("endpoint", "", "HOST:PORT of the server")
	conns      = flag.Int("conns", 8, "connections")
	inFlight   = flag.Int("in-flight", 256, "puts in flight")
	keys       = flag.Int("keys", 10000, "different keys")
	count      = flag.Int("count", 10000, "puts or ranges in all")
	keyBytes   = flag.Int("key-bytes", 32, "length of a key")
	valueBytes = flag.Int("value-bytes", 256, "length of a value")
	rate       = flag.Int("rate", 500, "paced: puts a second")
	seconds    = flag.Float64("seconds", 0, "paced: how long; 0 means until standard input ends")
	watchers   = flag.Int("watchers", 2000, "watch: watchers, spread over the connections, one stream on each")
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: load fill|paced|watch|range -endpoint HOST:PORT [flags]"))
	}
	commands := map[string]func([]*grpc.ClientConn) (any, error){"fill": fill, "paced": paced, "watch": watch, "range": ranges}
	command := commands[os.Args[1]]
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil || command == nil || *endpoint == "" {
		fail(fmt.Errorf("usage: load fill|paced|watch|range -endpoint HOST:PORT [flags]"))
	}
	connections, err := dial(*conns)
	if err != nil {
		fail(err)
	}
	result, err := command(connections)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}

func dial(n int) ([]*grpc.ClientConn, error) {
	var all []*grpc.ClientConn
	for i := 0; i < n; i++ {
		c, err := grpc.NewClient("passthrough:///"+*endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
		if err != nil {
			return nil, err
		}
		all = append(all, c)
		c.Connect()
	}
	// The first call of a connection must not pay for making it: in a short measurement such calls would be the slowest hundredth.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range all {
		for state := c.GetState(); state != connectivity.Ready; state = c.GetState() {
			if !c.WaitForStateChange(ctx, state) {
				return nil, fmt.Errorf("no connection to %s: %s", *endpoint, state)
			}
		}
	}
	return all, nil
}

// keyOf spreads consecutive numbers over the key space, so that keys do not arrive in their order.
func keyOf(i int) []byte {
	number := uint64(i) * 2654435761 % uint64(*keys)
	return []byte(fmt.Sprintf("/load/%0*d", *keyBytes-len("/load/"), number))
}

// valueOf gives each put bytes of its own, so that nothing can be shared or compressed between them.
func valueOf(i int) []byte {
	value := make([]byte, *valueBytes)
	state := uint64(i)*0x9e3779b97f4a7c15 + 1
	for n := range value {
		state = state*6364136223846793005 + 1442695040888963407
		value[n] = byte(state >> 56)
	}
	return value
}

// forAll runs do(connection, i) for i below *count, *inFlight at a time.
func forAll(connections []*grpc.ClientConn, do func(*grpc.ClientConn, int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make(chan error, *inFlight)
	for worker := 0; worker < *inFlight; worker++ {
		group.Add(1)
		go func(c *grpc.ClientConn) {
			defer group.Done()
			for i := int(next.Add(1)) - 1; i < *count; i = int(next.Add(1)) - 1 {
				if err := do(c, i); err != nil {
					errs <- err
					return
				}
			}
		}(connections[worker%len(connections)])
	}
	group.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func put(c *grpc.ClientConn, key, value []byte) error {
	_, err := pb.NewKVClient(c).Put(context.Background(), &pb.PutRequest{Key: key, Value: value})
	return err
}

func fill(connections []*grpc.ClientConn) (any, error) {
	start := time.Now()
	err := forAll(connections, func(c *grpc.ClientConn, i int) error { return put(c, keyOf(i), valueOf(i)) })
	return map[string]any{"seconds": time.Since(start).Seconds()}, err
}

// paced starts puts at a steady rate whether or not the earlier ones were answered: a server that stalls delays all the puts of
// that time, as it would those of independent clients. Says "connected" when it begins.
func paced(connections []*grpc.ClientConn) (any, error) {
	stop := make(chan struct{})
	go func() {
		if *seconds > 0 {
			time.Sleep(time.Duration(*seconds * float64(time.Second)))
		} else {
			_, _ = io.Copy(io.Discard, os.Stdin)
		}
		close(stop)
	}()
	var group sync.WaitGroup
	var lock sync.Mutex
	var times []float64
	var failure error
	one := func(i int) {
		defer group.Done()
		start := time.Now()
		err := put(connections[i%len(connections)], keyOf(i), valueOf(i))
		took := time.Since(start).Seconds()
		lock.Lock()
		defer lock.Unlock()
		if err != nil {
			failure = err
		}
		times = append(times, took)
	}
	fmt.Println("connected")
	ticker := time.NewTicker(time.Second / time.Duration(*rate))
	defer ticker.Stop()
	start := time.Now()
	for i := 0; ; {
		select {
		case <-stop:
			group.Wait()
			if failure == nil && len(times) == 0 {
				failure = fmt.Errorf("no put was made")
			}
			if failure != nil {
				return nil, failure
			}
			sort.Float64s(times)
			return map[string]any{"puts": len(times), "p50": times[len(times)/2], "p99": times[len(times)*99/100],
				"worst": times[len(times)-1]}, nil
		case <-ticker.C:
			// A ticker drops ticks nobody was there to take; the count follows the clock all the same.
			for ; i < int(time.Since(start).Seconds()*float64(*rate)); i++ {
				group.Add(1)
				go one(i)
			}
		}
	}
}

// watch counts the events of *count puts of one key at *watchers watchers. Each has to see every revision, in order, once.
func watch(connections []*grpc.ClientConn) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	// The first connection is for the puts alone.
	streams := connections[1:]
	ready := make(chan error, len(streams))
	done := make(chan error, len(streams))
	var events atomic.Int64
	for s, c := range streams {
		mine := *watchers / len(streams)
		if s < *watchers%len(streams) {
			mine++
		}
		go func() { done <- watchStream(ctx, c, mine, ready, &events) }()
	}
	for range streams {
		if err := <-ready; err != nil {
			return nil, err
		}
	}
	start := time.Now()
	key := []byte("watched")
	err := forAll(connections[:1], func(c *grpc.ClientConn, i int) error { return put(c, key, valueOf(i)) })
	if err != nil {
		return nil, err
	}
	putting := time.Since(start).Seconds()
	for range streams {
		if err := <-done; err != nil {
			return nil, err
		}
	}
	if want := int64(*watchers) * int64(*count); events.Load() != want {
		return nil, fmt.Errorf("%d events arrived, not %d", events.Load(), want)
	}
	return map[string]any{"events": events.Load(), "put_seconds": putting, "seconds": time.Since(start).Seconds()}, nil
}

func watchStream(ctx context.Context, c *grpc.ClientConn, mine int, ready chan<- error, events *atomic.Int64) error {
	stream, err := pb.NewWatchClient(c).Watch(ctx)
	if err == nil {
		err = createAll(stream, mine)
	}
	ready <- err
	if err != nil {
		return err
	}
	last := make([]int64, mine) // by watch id: the revision seen last
	for left := mine * *count; left > 0; {
		answer, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("after %d events: %w", events.Load(), err)
		}
		if answer.WatchId < 0 || answer.WatchId >= int64(mine) || answer.Canceled {
			return fmt.Errorf("unexpected answer on a watch stream: watch id %d, canceled %v", answer.WatchId, answer.Canceled)
		}
		for _, event := range answer.Events {
			revision := event.Kv.ModRevision
			if seen := last[answer.WatchId]; seen != 0 && revision != seen+1 {
				return fmt.Errorf("watch %d saw revision %d after %d", answer.WatchId, revision, seen)
			}
			last[answer.WatchId] = revision
		}
		left -= len(answer.Events)
		events.Add(int64(len(answer.Events)))
	}
	return stream.CloseSend()
}

func createAll(stream pb.Watch_WatchClient, n int) error {
	create := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("watched")}}}
	for i := 0; i < n; i++ {
		if err := stream.Send(create); err != nil {
			return err
		}
		if answer, err := stream.Recv(); err != nil {
			return err
		} else if !answer.Created {
			return fmt.Errorf("a watch was not created: %s", answer.CancelReason)
		}
	}
	return nil
}

// ranges reads all *keys keys *count times, each connection one range after the other.
func ranges(connections []*grpc.ClientConn) (any, error) {
	*inFlight = len(connections)
	start := time.Now()
	err := forAll(connections, func(c *grpc.ClientConn, _ int) error {
		answer, err := pb.NewKVClient(c).Range(context.Background(), &pb.RangeRequest{Key: []byte("/load/"), RangeEnd: []byte("/load0")})
		if err == nil && len(answer.Kvs) != *keys {
			err = fmt.Errorf("a range gave %d keys, not %d", len(answer.Kvs), *keys)
		}
		return err
	})
	return map[string]any{"seconds": time.Since(start).Seconds()}, err
}
