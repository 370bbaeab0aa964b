package main

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

const (
	rpcAlarm    = "etcdserverpb.Maintenance/Alarm"
	rpcStatus   = "etcdserverpb.Maintenance/Status"
	rpcDefrag   = "etcdserverpb.Maintenance/Defragment"
	rpcHash     = "etcdserverpb.Maintenance/Hash"
	rpcHashKV   = "etcdserverpb.Maintenance/HashKV"
	rpcSnapshot = "etcdserverpb.Maintenance/Snapshot"

	rpcMemberList   = "etcdserverpb.Cluster/MemberList"
	rpcMemberAdd    = "etcdserverpb.Cluster/MemberAdd"
	rpcMemberRemove = "etcdserverpb.Cluster/MemberRemove"
	rpcMemberUpdate = "etcdserverpb.Cluster/MemberUpdate"

	rpcHealthCheck = "grpc.health.v1.Health/Check"
	rpcHealthList  = "grpc.health.v1.Health/List"
	rpcHealthWatch = "grpc.health.v1.Health/Watch"
)

func (r *run) maintenance() {
	alarm := func(action pb.AlarmRequest_AlarmAction, member uint64, kind pb.AlarmType) *pb.AlarmRequest {
		return &pb.AlarmRequest{Action: action, MemberID: member, Alarm: kind}
	}
	const get, on, off = pb.AlarmRequest_GET, pb.AlarmRequest_ACTIVATE, pb.AlarmRequest_DEACTIVATE
	r.steps("maintenance", []step{
		{"status", rpcStatus, &pb.StatusRequest{}},
		{"hash", rpcHash, &pb.HashRequest{}},
		{"snapshot", rpcSnapshot, &pb.SnapshotRequest{}},
		{"defragment", rpcDefrag, &pb.DefragmentRequest{}},
		{"no alarms", rpcAlarm, alarm(get, 0, pb.AlarmType_NONE)},
		{"raise nothing", rpcAlarm, alarm(on, 0x1234, pb.AlarmType_NONE)},
		{"clear one not raised", rpcAlarm, alarm(off, 0x1234, pb.AlarmType_NOSPACE)},
		{"raise an unknown kind", rpcAlarm, alarm(on, 0x1234, 9)},
		{"clear the unknown kind", rpcAlarm, alarm(off, 0x1234, 9)},
		{"raise no space", rpcAlarm, alarm(on, 0x1234, pb.AlarmType_NOSPACE)},
		{"raise no space again", rpcAlarm, alarm(on, 0x1234, pb.AlarmType_NOSPACE)},
		{"raise no space of nobody", rpcAlarm, alarm(on, 0, pb.AlarmType_NOSPACE)},
		{"all alarms", rpcAlarm, alarm(get, 0, pb.AlarmType_NONE)},
		{"alarms of one kind", rpcAlarm, alarm(get, 7, pb.AlarmType_NOSPACE)},
		{"alarms of the other kind", rpcAlarm, alarm(get, 0, pb.AlarmType_CORRUPT)},
		{"status with alarms", rpcStatus, &pb.StatusRequest{}},
		{"put without space", rpcPut, putOf("space", "1")},
		{"put without space and without key", rpcPut, putOf("", "1")},
		{"grant without space", rpcGrant, &pb.LeaseGrantRequest{ID: 91, TTL: 100}},
		{"txn of a put without space", rpcTxn, doing(opPut(putOf("space", "1")))},
		{"txn of a put not taken without space", rpcTxn, &pb.TxnRequest{Failure: []*pb.RequestOp{opPut(putOf("space", "1"))}}},
		{"txn of a delete without space", rpcTxn, doing(opDelete(deleteOf("missing", "")))},
		{"txn of a read without space", rpcTxn, doing(opRange(rangeOf("k1", "")))},
		{"nested put without space", rpcTxn, doing(opTxn(doing(opPut(putOf("space", "1")))))},
		{"delete without space", rpcDelete, deleteOf("k3", "")},
		{"range without space", rpcRange, rangeOf("k1", "")},
		{"revoke without space", rpcRevoke, &pb.LeaseRevokeRequest{ID: 404}},
		{"clear of another member", rpcAlarm, alarm(off, 0x99, pb.AlarmType_NOSPACE)},
		{"clear of nobody", rpcAlarm, alarm(off, 0, pb.AlarmType_NOSPACE)},
		{"clear", rpcAlarm, alarm(off, 0x1234, pb.AlarmType_NOSPACE)},
		{"put after it", rpcPut, putOf("space", "1")},
	})
	for _, path := range []string{"/health", "/readyz", "/readyz?verbose", "/livez?verbose"} {
		r.bothHTTP("health without alarm "+path[1:], "GET", path, "", nil)
	}
	r.both("maintenance: raise corruption", rpcAlarm, alarm(on, 0x1234, pb.AlarmType_CORRUPT))
	for _, path := range []string{"/health", "/health?exclude=CORRUPT", "/health?exclude=NOSPACE", "/readyz", "/readyz/data_corruption", "/readyz?exclude=data_corruption", "/livez"} {
		r.bothHTTP("health with corruption "+path[1:], "GET", path, "", nil)
	}
	r.steps("maintenance", []step{
		{"status of a corrupt cluster", rpcStatus, &pb.StatusRequest{}},
		{"put when corrupt", rpcPut, putOf("space", "1")},
		{"delete when corrupt", rpcDelete, deleteOf("space", "")},
		{"txn when corrupt", rpcTxn, doing(opPut(putOf("space", "1")))},
		{"reading txn when corrupt", rpcTxn, doing(opRange(rangeOf("space", "")))},
		{"compact when corrupt", rpcCompact, &pb.CompactionRequest{Revision: 5}},
		{"grant when corrupt", rpcGrant, &pb.LeaseGrantRequest{ID: 92, TTL: 100}},
		{"revoke when corrupt", rpcRevoke, &pb.LeaseRevokeRequest{ID: leaseOther}},
		{"range when corrupt", rpcRange, rangeOf("space", "")},
		{"no space as well", rpcAlarm, alarm(on, 0x1234, pb.AlarmType_NOSPACE)},
		{"put with both", rpcPut, putOf("space", "1")},
		{"clear no space", rpcAlarm, alarm(off, 0x1234, pb.AlarmType_NOSPACE)},
		{"clear corruption", rpcAlarm, alarm(off, 0x1234, pb.AlarmType_CORRUPT)},
		{"compact ahead", rpcCompact, &pb.CompactionRequest{Revision: 1 << 40}},
	})
	r.both("health: check", rpcHealthCheck, &health.HealthCheckRequest{})
	r.both("health: check of another service", rpcHealthCheck, &health.HealthCheckRequest{Service: "etcdserverpb.KV"})
	r.both("health: list", rpcHealthList, &health.HealthListRequest{})
	r.both("health: watch", rpcHealthWatch, &health.HealthCheckRequest{})
	r.both("health: watch of another service", rpcHealthWatch, &health.HealthCheckRequest{Service: "x"})
}

// oneSided sends what would bring etcd down to Engram alone, and checks the answer against what is wanted.
func (r *run) oneSided(name, rpc string, request proto.Message, code, message string) {
	o, err := r.engram.call(rpc, request)
	if err != nil {
		r.broken(name, err)
		return
	}
	if r.rules.find("differs", name) == nil {
		r.broken(name, fmt.Errorf("not in the list of known differences"))
		return
	}
	if o.code != code || o.message != message {
		r.broken(name, fmt.Errorf("wanted %s %q, got %s %q", code, message, o.code, o.message))
		return
	}
	r.passed++
}

// deliberate goes through the differences that are meant. What etcd does to its state is then done to Engram in other words.
func (r *run) deliberate() {
	const invalid = "InvalidArgument"
	r.oneSided("deliberate: unknown alarm action", rpcAlarm, &pb.AlarmRequest{Action: 7}, invalid, unknownAlarmAction)
	r.oneSided("deliberate: member update with a bad URL", rpcMemberUpdate, &pb.MemberUpdateRequest{ID: r.engram.memberID, PeerURLs: []string{"not a url"}},
		invalid, "etcdserver: given member URLs are invalid")
	r.oneSided("deliberate: requirement lost within the txn", rpcTxn, doing(opDelete(deleteOf("t", "\x00")), opPut(&pb.PutRequest{Key: []byte("t"), IgnoreValue: true})),
		invalid, "etcdserver: duplicate key given in txn request")
	r.both("deliberate: hash at a negative revision", rpcHashKV, &pb.HashKVRequest{Revision: -3})
	resync := func(q ...proto.Message) {
		for _, m := range q {
			if o, err := r.engram.call(rpcPut, m); err != nil || o.code != "OK" {
				r.broken("deliberate: same state again", fmt.Errorf("%s %s: %v", o.code, o.message, err))
			}
		}
	}
	r.both("deliberate: open-ended delete over a put", rpcTxn, doing(opDelete(deleteOf("~~", "\x00")), opPut(putOf("~~1", "v"))))
	resync(putOf("~~1", "v"))
	r.both("deliberate: sibling puts, then deletes", rpcTxn, doing(opTxn(doing(opPut(putOf("~~2", "v")))), opTxn(doing(opDelete(deleteOf("~~2", ""))))))
	resync(putOf("~~2", "v"))
	r.both("deliberate: same revision after it", rpcRange, rangeOf("k1", ""))
}

// members comes last: it leaves both sides with a second member that never starts.
func (r *run) members() {
	add := func(learner bool, urls ...string) *pb.MemberAddRequest {
		return &pb.MemberAddRequest{PeerURLs: urls, IsLearner: learner}
	}
	self := func(s *side) uint64 { return s.memberID }
	r.both("member: list", rpcMemberList, &pb.MemberListRequest{})
	r.both("member: list, linearizable", rpcMemberList, &pb.MemberListRequest{Linearizable: true})
	bad := map[string]*pb.MemberAddRequest{
		"no URL": add(false), "empty URL": add(false, ""), "no scheme": add(false, "127.0.0.1:1"), "other scheme": add(false, "ftp://127.0.0.1:1"),
		"no port": add(false, "http://127.0.0.1"), "path": add(false, "http://127.0.0.1:1/x"), "one of two bad": add(true, "http://127.0.0.1:1", "x"),
		"blank within": add(true, "http://127.0.0.1 :1"), "port of letters": add(false, "http://127.0.0.1:http"), "nothing but a scheme": add(false, "http://"),
	}
	for _, name := range sortedKeys(bad) {
		r.both("member: add with "+name, rpcMemberAdd, bad[name])
	}
	r.both("member: remove an unknown one", rpcMemberRemove, &pb.MemberRemoveRequest{ID: 404})
	r.both("member: update an unknown one", rpcMemberUpdate, &pb.MemberUpdateRequest{ID: 404, PeerURLs: []string{"http://127.0.0.1:9"}})
	r.bothOf("member: remove the last one", rpcMemberRemove, func(s *side) proto.Message { return &pb.MemberRemoveRequest{ID: self(s)} })
	r.bothOf("member: add its own URL", rpcMemberAdd, func(s *side) proto.Message { return add(false, s.peerURL) })
	a, b := r.both("member: add a learner", rpcMemberAdd, add(true, "http://127.0.0.1:1", "http://127.0.0.2:2"))
	if a.code != "OK" || b.code != "OK" {
		return
	}
	learner := map[string]uint64{"etcd": a.responses[0].(*pb.MemberAddResponse).Member.ID, "engram": b.responses[0].(*pb.MemberAddResponse).Member.ID}
	r.both("member: list with a learner", rpcMemberList, &pb.MemberListRequest{})
	if _, extra := r.both("member: add a second learner", rpcMemberAdd, add(true, "http://127.0.0.1:3")); extra.code == "OK" {
		id := extra.responses[0].(*pb.MemberAddResponse).Member.ID
		if o, err := r.engram.call(rpcMemberRemove, &pb.MemberRemoveRequest{ID: id}); err != nil || o.code != "OK" {
			r.broken("member: same state again", fmt.Errorf("%s %s: %v", o.code, o.message, err))
		}
	}
	r.both("member: add the learner's URL", rpcMemberAdd, add(false, "http://127.0.0.2:2"))
	r.both("member: add the learner's URL with blanks", rpcMemberAdd, add(false, " http://127.0.0.2:2\n"))
	r.bothOf("member: update to another's URL", rpcMemberUpdate, func(s *side) proto.Message {
		return &pb.MemberUpdateRequest{ID: learner[s.name], PeerURLs: []string{s.peerURL}}
	})
	r.bothOf("member: update", rpcMemberUpdate, func(s *side) proto.Message {
		return &pb.MemberUpdateRequest{ID: learner[s.name], PeerURLs: []string{"http://127.0.0.1:4"}}
	})
	r.bothOf("member: remove the learner", rpcMemberRemove, func(s *side) proto.Message { return &pb.MemberRemoveRequest{ID: learner[s.name]} })
	r.bothOf("member: remove it again", rpcMemberRemove, func(s *side) proto.Message { return &pb.MemberRemoveRequest{ID: learner[s.name]} })
	r.bothOf("member: update it after that", rpcMemberUpdate, func(s *side) proto.Message {
		return &pb.MemberUpdateRequest{ID: learner[s.name], PeerURLs: []string{"http://127.0.0.1:4"}}
	})
	r.both("member: list at the end", rpcMemberList, &pb.MemberListRequest{Linearizable: true})
	r.both("member: add a voter", rpcMemberAdd, add(false, "http://127.0.0.1:5"))
	r.both("member: list with a second voter", rpcMemberList, &pb.MemberListRequest{})
	r.both("member: add a third while the second is missing", rpcMemberAdd, add(false, "http://127.0.0.1:6"))
	r.both("member: read without quorum", rpcRange, &pb.RangeRequest{Key: []byte("k1"), Serializable: true})
}
