package main

import (
	"context"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A forger alters one answer to each RPC as it comes from the wire, below all that compares: what is unary and what streams alike.
type forger struct {
	rules rules

	mutex  sync.Mutex
	armed  string          // the RPC whose next answer is altered; empty: none
	forged map[string]bool // RPCs of which an answer was altered
}

// arm says that the coming call's answers are compared. Answers that no case looks at are left alone.
func (f *forger) arm(rpc string) {
	if f == nil {
		return
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.armed = rpc; f.forged[rpc] {
		f.armed = ""
	}
}

// disarm says whether an answer was altered since arm.
func (f *forger) disarm(rpc string) bool {
	if f == nil {
		return false
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	hit := f.armed == rpc && f.forged[rpc]
	f.armed = ""
	return hit
}

// see alters the answer if it is one to alter: the last place of it that no mask covers.
func (f *forger) see(method string, answer any) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	rpc := strings.TrimPrefix(method, "/")
	if f.armed != rpc || f.forged[rpc] {
		return
	}
	m := answer.(proto.Message)
	if w, ok := m.(*pb.WatchResponse); ok && (len(w.Events) == 0 || string(w.Events[0].Kv.Key) == barrierKey) {
		return // what a script waits for, or does not compare
	}
	c := &comparer{rules: f.rules, rpc: rpc}
	places := c.places(m.ProtoReflect(), func(x proto.Message) protoreflect.Message { return x.ProtoReflect() })
	if len(places) > 0 {
		places[len(places)-1](m)
		f.forged[rpc] = true
	}
}

func (f *forger) options() []grpc.DialOption {
	unary := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		err := invoke(ctx, method, request, reply, conn, options...)
		if err == nil {
			f.see(method, reply)
		}
		return err
	}
	stream := func(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := open(ctx, d, conn, method, options...)
		if err != nil {
			return nil, err
		}
		return &forgedStream{s, f, method}, nil
	}
	return []grpc.DialOption{grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(stream)}
}

type forgedStream struct {
	grpc.ClientStream
	forger *forger
	method string
}

func (s *forgedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil {
		s.forger.see(s.method, m)
	}
	return err
}
