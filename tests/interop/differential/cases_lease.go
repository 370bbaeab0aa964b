package main

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

const (
	rpcGrant     = "etcdserverpb.Lease/LeaseGrant"
	rpcRevoke    = "etcdserverpb.Lease/LeaseRevoke"
	rpcKeepAlive = "etcdserverpb.Lease/LeaseKeepAlive"
	rpcTimeLeft  = "etcdserverpb.Lease/LeaseTimeToLive"
	rpcLeases    = "etcdserverpb.Lease/LeaseLeases"

	// Leases that live through the whole run.
	leaseLong  = 1000
	leaseOther = -2000
)

func alive(ids ...int64) []proto.Message {
	var all []proto.Message
	for _, id := range ids {
		all = append(all, &pb.LeaseKeepAliveRequest{ID: id})
	}
	return all
}

func (r *run) leases() {
	r.steps("lease", []step{
		{"none", rpcLeases, &pb.LeaseLeasesRequest{}},
		{"grant", rpcGrant, &pb.LeaseGrantRequest{ID: leaseLong, TTL: 3600}},
		{"grant a negative id", rpcGrant, &pb.LeaseGrantRequest{ID: leaseOther, TTL: 7200}},
		{"grant again", rpcGrant, &pb.LeaseGrantRequest{ID: leaseLong, TTL: 60}},
		{"grant with no TTL", rpcGrant, &pb.LeaseGrantRequest{ID: 1}},
		{"grant with a negative TTL", rpcGrant, &pb.LeaseGrantRequest{ID: 2, TTL: -7}},
		{"grant with the largest TTL", rpcGrant, &pb.LeaseGrantRequest{ID: 3, TTL: 9000000000}},
		{"grant with a larger TTL", rpcGrant, &pb.LeaseGrantRequest{ID: 4, TTL: 9000000001}},
		{"grant again with a larger TTL", rpcGrant, &pb.LeaseGrantRequest{ID: leaseLong, TTL: 9000000001}},
		{"all", rpcLeases, &pb.LeaseLeasesRequest{}},
		{"revoke 0", rpcRevoke, &pb.LeaseRevokeRequest{}},
		{"revoke an unknown one", rpcRevoke, &pb.LeaseRevokeRequest{ID: 404}},
		{"revoke one without keys", rpcRevoke, &pb.LeaseRevokeRequest{ID: 3}},
		{"revoke it again", rpcRevoke, &pb.LeaseRevokeRequest{ID: 3}},
		{"time of 0", rpcTimeLeft, &pb.LeaseTimeToLiveRequest{}},
		{"time of an unknown one", rpcTimeLeft, &pb.LeaseTimeToLiveRequest{ID: 404, Keys: true}},
		{"time of one without keys", rpcTimeLeft, &pb.LeaseTimeToLiveRequest{ID: leaseLong, Keys: true}},
		{"attach", rpcPut, &pb.PutRequest{Key: []byte("leased/1"), Value: []byte("v"), Lease: leaseLong}},
		{"attach to another", rpcPut, &pb.PutRequest{Key: []byte("leased/1"), Value: []byte("w"), Lease: leaseOther, PrevKv: true}},
		{"keep the lease", rpcPut, &pb.PutRequest{Key: []byte("leased/1"), Value: []byte("x"), IgnoreLease: true, PrevKv: true}},
		{"time with keys", rpcTimeLeft, &pb.LeaseTimeToLiveRequest{ID: leaseOther, Keys: true}},
		{"time without keys", rpcTimeLeft, &pb.LeaseTimeToLiveRequest{ID: leaseOther}},
		{"detach", rpcPut, &pb.PutRequest{Key: []byte("leased/1"), Value: []byte("y"), PrevKv: true}},
		{"time after it", rpcTimeLeft, &pb.LeaseTimeToLiveRequest{ID: leaseOther, Keys: true}},
		{"grant for keys", rpcGrant, &pb.LeaseGrantRequest{ID: 50, TTL: 500}},
		{"attach three", rpcTxn, doing(opPut(&pb.PutRequest{Key: []byte("l/3"), Lease: 50}), opPut(&pb.PutRequest{Key: []byte("l/1"), Lease: 50}), opPut(&pb.PutRequest{Key: []byte("l/2"), Lease: 50}))},
		{"delete one of them", rpcDelete, deleteOf("l/2", "")},
		{"time with two keys", rpcTimeLeft, &pb.LeaseTimeToLiveRequest{ID: 50, Keys: true}},
		{"revoke with two keys", rpcRevoke, &pb.LeaseRevokeRequest{ID: 50}},
		{"keys after it", rpcRange, rangeOf("l/", "l0")},
		{"put to the revoked one", rpcPut, &pb.PutRequest{Key: []byte("l/1"), Lease: 50}},
	})
	r.both("lease: an id of the server's choice", rpcGrant, &pb.LeaseGrantRequest{TTL: 100000})
	r.bothExchange("lease: keep alive", rpcKeepAlive, alive(leaseLong, leaseOther, 404, 0, leaseLong)...)
	r.bothExchange("lease: keep alive nothing", rpcKeepAlive)
	// The leases with the least time end by themselves; both sides have to notice.
	for _, s := range []*side{r.etcd, r.engram} {
		if err := waitUntil(func() (bool, error) {
			o, err := s.call(rpcTimeLeft, &pb.LeaseTimeToLiveRequest{ID: 2})
			if err != nil || o.code != "OK" {
				return false, fmt.Errorf("%s %s: %w", o.code, o.message, err)
			}
			return o.responses[0].(*pb.LeaseTimeToLiveResponse).TTL == -1, nil
		}); err != nil {
			r.broken("lease: expiry on "+s.name, err)
		}
	}
	r.bothExchange("lease: keep alive an expired one", rpcKeepAlive, alive(2)...)
	r.both("lease: revoke an expired one", rpcRevoke, &pb.LeaseRevokeRequest{ID: 2})
}
