package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// A call that a healthy server answers at once must not hang the run.
const callLimit = 20 * time.Second

// A side is one of the two servers.
type side struct {
	name     string
	endpoint string
	conn     *grpc.ClientConn
	memberID uint64
	peerURL  string
}

// An outcome is all that a client sees of one call: the status and every response message. Notes hold what is checked over a
// whole stream where the messages themselves may be cut differently.
type outcome struct {
	code      string
	message   string
	responses []proto.Message
	notes     []string
}

func connect(name, endpoint string, more ...grpc.DialOption) (*side, error) {
	options := append(more, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	conn, err := grpc.NewClient("passthrough:///"+endpoint, options...)
	if err != nil {
		return nil, err
	}
	s := &side{name: name, endpoint: endpoint, conn: conn}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	members, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{})
	if err != nil {
		return nil, fmt.Errorf("%s does not list its members: %w", name, err)
	}
	if len(members.Members) != 1 || members.Header == nil {
		return nil, fmt.Errorf("%s is not a single new member", name)
	}
	s.memberID = members.Members[0].ID
	s.peerURL = members.Members[0].PeerURLs[0]
	return s, nil
}

// neutral replaces what names this server by words that are the same for both.
func (s *side) neutral(text string) string {
	text = strings.ReplaceAll(text, s.peerURL, "PEER-URL")
	text = strings.ReplaceAll(text, s.endpoint, "ENDPOINT")
	return strings.ReplaceAll(text, fmt.Sprint(s.memberID), "MEMBER-ID")
}

// methodOf gives the descriptor of an RPC such as "etcdserverpb.KV/Range".
func methodOf(rpc string) (protoreflect.MethodDescriptor, error) {
	service, method, _ := strings.Cut(rpc, "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + method))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", rpc, err)
	}
	return d.(protoreflect.MethodDescriptor), nil
}

func newResponse(method protoreflect.MethodDescriptor) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(method.Output().FullName())
	if err != nil {
		return nil, err
	}
	return t.New().Interface(), nil
}

func (s *side) outcomeOf(err error, responses ...proto.Message) outcome {
	if err == nil || err == io.EOF {
		return outcome{code: "OK", responses: responses}
	}
	st := status.Convert(err)
	return outcome{code: st.Code().String(), message: s.neutral(st.Message()), responses: responses}
}

// call makes one call of any kind but a two-way stream.
func (s *side) call(rpc string, request proto.Message) (outcome, error) {
	method, err := methodOf(rpc)
	if err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if !method.IsStreamingServer() {
		response, err := newResponse(method)
		if err != nil {
			return outcome{}, err
		}
		if err := s.conn.Invoke(ctx, "/"+rpc, request, response); err != nil {
			return s.outcomeOf(err), nil
		}
		return s.outcomeOf(nil, response), nil
	}
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+rpc)
	if err != nil {
		return s.outcomeOf(err), nil
	}
	if err := stream.SendMsg(request); err != nil && err != io.EOF {
		return s.outcomeOf(err), nil
	}
	if err := stream.CloseSend(); err != nil {
		return s.outcomeOf(err), nil
	}
	var responses []proto.Message
	for {
		response, err := newResponse(method)
		if err != nil {
			return outcome{}, err
		}
		if err := stream.RecvMsg(response); err != nil {
			return gather(rpc, s.outcomeOf(err, responses...)), nil
		}
		responses = append(responses, response)
		if rpc == "grpc.health.v1.Health/Watch" { // endless; the first answer is what can be compared
			return s.outcomeOf(nil, responses...), nil
		}
	}
}

// gather merges the messages of a stream that may be cut anywhere, and notes what holds for the sequence.
func gather(rpc string, o outcome) outcome {
	switch rpc {
	case "etcdserverpb.KV/RangeStream":
		merged := &pb.RangeStreamResponse{}
		for i, r := range o.responses {
			part := r.(*pb.RangeStreamResponse)
			if last := i == len(o.responses)-1; (part.GetRangeResponse().GetHeader() != nil) != last {
				o.notes = append(o.notes, "a header elsewhere than in the last message")
			}
			proto.Merge(merged, part)
		}
		if len(o.responses) > 0 {
			o.responses = []proto.Message{merged}
		}
	case "etcdserverpb.Maintenance/Snapshot":
		return gatherSnapshot(o)
	}
	return o
}

// gatherSnapshot reduces a snapshot, which differs in every byte, to its form: sizes, the remaining count, the checksum.
func gatherSnapshot(o outcome) outcome {
	hash := sha256.New()
	var total uint64
	for _, r := range o.responses {
		total += uint64(len(r.(*pb.SnapshotResponse).Blob))
	}
	if len(o.responses) < 2 {
		return o
	}
	o.notes = append(o.notes, fmt.Sprintf("size mod 512: %d", total%512))
	last := o.responses[len(o.responses)-1].(*pb.SnapshotResponse)
	sent := uint64(0)
	counted, versions, full, headers := true, true, true, 0
	for i, r := range o.responses[:len(o.responses)-1] {
		part := r.(*pb.SnapshotResponse)
		hash.Write(part.Blob)
		sent += uint64(len(part.Blob))
		counted = counted && part.RemainingBytes == total-uint64(len(last.Blob))-sent
		versions = versions && part.Version == last.Version
		full = full && (len(part.Blob) == 32<<10 || i == len(o.responses)-2)
		if part.Header != nil {
			headers++
		}
	}
	o.notes = append(o.notes, fmt.Sprintf("remaining bytes right: %v, one version: %v, blobs of 32 KiB: %v, headers: %d, checksum right: %v",
		counted, versions, full, headers, string(hash.Sum(nil)) == string(last.Blob)))
	o.responses = []proto.Message{&pb.SnapshotResponse{Version: last.Version, RemainingBytes: last.RemainingBytes, Header: last.Header}}
	return o
}

// exchange sends requests over a two-way stream one at a time, taking one response to each.
func (s *side) exchange(rpc string, requests []proto.Message) (outcome, error) {
	method, err := methodOf(rpc)
	if err != nil {
		return outcome{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	stream, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+rpc)
	if err != nil {
		return s.outcomeOf(err), nil
	}
	var responses []proto.Message
	for _, request := range requests {
		if err := stream.SendMsg(request); err != nil && err != io.EOF {
			return s.outcomeOf(err, responses...), nil
		}
		response, err := newResponse(method)
		if err != nil {
			return outcome{}, err
		}
		if err := stream.RecvMsg(response); err != nil {
			return s.outcomeOf(err, responses...), nil
		}
		responses = append(responses, response)
	}
	if err := stream.CloseSend(); err != nil {
		return s.outcomeOf(err, responses...), nil
	}
	extra, err := newResponse(method)
	if err != nil {
		return outcome{}, err
	}
	return s.outcomeOf(stream.RecvMsg(extra), responses...), nil
}

// An httpAnswer is what a plain HTTP client sees.
type httpAnswer struct {
	status  int
	headers http.Header
	body    string
}

func (s *side) http(method, path, body string, headers map[string]string) (httpAnswer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.endpoint+path, strings.NewReader(body))
	if err != nil {
		return httpAnswer{}, err
	}
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return httpAnswer{}, fmt.Errorf("%s: %w", s.name, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return httpAnswer{}, fmt.Errorf("%s: %w", s.name, err)
	}
	return httpAnswer{status: response.StatusCode, headers: response.Header, body: s.neutral(string(text))}, nil
}
