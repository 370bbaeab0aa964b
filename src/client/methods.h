// The client API's methods as typed constants: `client.Call(client::kRange, request)`. Message
// types are only declared here; include "proto/rpc.pb.h" to build one. Constants: any thread.
#pragma once

#include <string_view>

namespace etcdserverpb {
class AlarmRequest;
class AlarmResponse;
class AuthDisableRequest;
class AuthDisableResponse;
class AuthEnableRequest;
class AuthEnableResponse;
class AuthRoleAddRequest;
class AuthRoleAddResponse;
class AuthRoleDeleteRequest;
class AuthRoleDeleteResponse;
class AuthRoleGetRequest;
class AuthRoleGetResponse;
class AuthRoleGrantPermissionRequest;
class AuthRoleGrantPermissionResponse;
class AuthRoleListRequest;
class AuthRoleListResponse;
class AuthRoleRevokePermissionRequest;
class AuthRoleRevokePermissionResponse;
class AuthStatusRequest;
class AuthStatusResponse;
class AuthUserAddRequest;
class AuthUserAddResponse;
class AuthUserChangePasswordRequest;
class AuthUserChangePasswordResponse;
class AuthUserDeleteRequest;
class AuthUserDeleteResponse;
class AuthUserGetRequest;
class AuthUserGetResponse;
class AuthUserGrantRoleRequest;
class AuthUserGrantRoleResponse;
class AuthUserListRequest;
class AuthUserListResponse;
class AuthUserRevokeRoleRequest;
class AuthUserRevokeRoleResponse;
class AuthenticateRequest;
class AuthenticateResponse;
class CompactionRequest;
class CompactionResponse;
class DefragmentRequest;
class DefragmentResponse;
class DeleteRangeRequest;
class DeleteRangeResponse;
class DowngradeRequest;
class DowngradeResponse;
class HashKVRequest;
class HashKVResponse;
class HashRequest;
class HashResponse;
class LeaseGrantRequest;
class LeaseGrantResponse;
class LeaseLeasesRequest;
class LeaseLeasesResponse;
class LeaseRevokeRequest;
class LeaseRevokeResponse;
class LeaseTimeToLiveRequest;
class LeaseTimeToLiveResponse;
class MemberAddRequest;
class MemberAddResponse;
class MemberListRequest;
class MemberListResponse;
class MemberPromoteRequest;
class MemberPromoteResponse;
class MemberRemoveRequest;
class MemberRemoveResponse;
class MemberUpdateRequest;
class MemberUpdateResponse;
class MoveLeaderRequest;
class MoveLeaderResponse;
class PutRequest;
class PutResponse;
class RangeRequest;
class RangeResponse;
class StatusRequest;
class StatusResponse;
class TxnRequest;
class TxnResponse;
}  // namespace etcdserverpb

namespace client {

template <typename Request, typename Response>
struct Unary {
  std::string_view name;
};

namespace pb = ::etcdserverpb;

inline constexpr Unary<pb::RangeRequest, pb::RangeResponse> kRange{"/etcdserverpb.KV/Range"};
inline constexpr Unary<pb::PutRequest, pb::PutResponse> kPut{"/etcdserverpb.KV/Put"};
inline constexpr Unary<pb::DeleteRangeRequest, pb::DeleteRangeResponse> kDeleteRange{
    "/etcdserverpb.KV/DeleteRange"};
inline constexpr Unary<pb::TxnRequest, pb::TxnResponse> kTxn{"/etcdserverpb.KV/Txn"};
inline constexpr Unary<pb::CompactionRequest, pb::CompactionResponse> kCompact{
    "/etcdserverpb.KV/Compact"};

inline constexpr Unary<pb::LeaseGrantRequest, pb::LeaseGrantResponse> kLeaseGrant{
    "/etcdserverpb.Lease/LeaseGrant"};
inline constexpr Unary<pb::LeaseRevokeRequest, pb::LeaseRevokeResponse> kLeaseRevoke{
    "/etcdserverpb.Lease/LeaseRevoke"};
inline constexpr Unary<pb::LeaseTimeToLiveRequest, pb::LeaseTimeToLiveResponse> kLeaseTimeToLive{
    "/etcdserverpb.Lease/LeaseTimeToLive"};
inline constexpr Unary<pb::LeaseLeasesRequest, pb::LeaseLeasesResponse> kLeaseLeases{
    "/etcdserverpb.Lease/LeaseLeases"};

inline constexpr Unary<pb::MemberAddRequest, pb::MemberAddResponse> kMemberAdd{
    "/etcdserverpb.Cluster/MemberAdd"};
inline constexpr Unary<pb::MemberRemoveRequest, pb::MemberRemoveResponse> kMemberRemove{
    "/etcdserverpb.Cluster/MemberRemove"};
inline constexpr Unary<pb::MemberUpdateRequest, pb::MemberUpdateResponse> kMemberUpdate{
    "/etcdserverpb.Cluster/MemberUpdate"};
inline constexpr Unary<pb::MemberListRequest, pb::MemberListResponse> kMemberList{
    "/etcdserverpb.Cluster/MemberList"};
inline constexpr Unary<pb::MemberPromoteRequest, pb::MemberPromoteResponse> kMemberPromote{
    "/etcdserverpb.Cluster/MemberPromote"};

inline constexpr Unary<pb::AlarmRequest, pb::AlarmResponse> kAlarm{
    "/etcdserverpb.Maintenance/Alarm"};
inline constexpr Unary<pb::StatusRequest, pb::StatusResponse> kStatus{
    "/etcdserverpb.Maintenance/Status"};
inline constexpr Unary<pb::DefragmentRequest, pb::DefragmentResponse> kDefragment{
    "/etcdserverpb.Maintenance/Defragment"};
inline constexpr Unary<pb::HashRequest, pb::HashResponse> kHash{"/etcdserverpb.Maintenance/Hash"};
inline constexpr Unary<pb::HashKVRequest, pb::HashKVResponse> kHashKV{
    "/etcdserverpb.Maintenance/HashKV"};
inline constexpr Unary<pb::MoveLeaderRequest, pb::MoveLeaderResponse> kMoveLeader{
    "/etcdserverpb.Maintenance/MoveLeader"};
inline constexpr Unary<pb::DowngradeRequest, pb::DowngradeResponse> kDowngrade{
    "/etcdserverpb.Maintenance/Downgrade"};

inline constexpr Unary<pb::AuthEnableRequest, pb::AuthEnableResponse> kAuthEnable{
    "/etcdserverpb.Auth/AuthEnable"};
inline constexpr Unary<pb::AuthDisableRequest, pb::AuthDisableResponse> kAuthDisable{
    "/etcdserverpb.Auth/AuthDisable"};
inline constexpr Unary<pb::AuthStatusRequest, pb::AuthStatusResponse> kAuthStatus{
    "/etcdserverpb.Auth/AuthStatus"};
inline constexpr Unary<pb::AuthenticateRequest, pb::AuthenticateResponse> kAuthenticate{
    "/etcdserverpb.Auth/Authenticate"};
inline constexpr Unary<pb::AuthUserAddRequest, pb::AuthUserAddResponse> kUserAdd{
    "/etcdserverpb.Auth/UserAdd"};
inline constexpr Unary<pb::AuthUserGetRequest, pb::AuthUserGetResponse> kUserGet{
    "/etcdserverpb.Auth/UserGet"};
inline constexpr Unary<pb::AuthUserListRequest, pb::AuthUserListResponse> kUserList{
    "/etcdserverpb.Auth/UserList"};
inline constexpr Unary<pb::AuthUserDeleteRequest, pb::AuthUserDeleteResponse> kUserDelete{
    "/etcdserverpb.Auth/UserDelete"};
inline constexpr Unary<pb::AuthUserChangePasswordRequest, pb::AuthUserChangePasswordResponse>
    kUserChangePassword{"/etcdserverpb.Auth/UserChangePassword"};
inline constexpr Unary<pb::AuthUserGrantRoleRequest, pb::AuthUserGrantRoleResponse> kUserGrantRole{
    "/etcdserverpb.Auth/UserGrantRole"};
inline constexpr Unary<pb::AuthUserRevokeRoleRequest, pb::AuthUserRevokeRoleResponse>
    kUserRevokeRole{"/etcdserverpb.Auth/UserRevokeRole"};
inline constexpr Unary<pb::AuthRoleAddRequest, pb::AuthRoleAddResponse> kRoleAdd{
    "/etcdserverpb.Auth/RoleAdd"};
inline constexpr Unary<pb::AuthRoleGetRequest, pb::AuthRoleGetResponse> kRoleGet{
    "/etcdserverpb.Auth/RoleGet"};
inline constexpr Unary<pb::AuthRoleListRequest, pb::AuthRoleListResponse> kRoleList{
    "/etcdserverpb.Auth/RoleList"};
inline constexpr Unary<pb::AuthRoleDeleteRequest, pb::AuthRoleDeleteResponse> kRoleDelete{
    "/etcdserverpb.Auth/RoleDelete"};
inline constexpr Unary<pb::AuthRoleGrantPermissionRequest, pb::AuthRoleGrantPermissionResponse>
    kRoleGrantPermission{"/etcdserverpb.Auth/RoleGrantPermission"};
inline constexpr Unary<pb::AuthRoleRevokePermissionRequest, pb::AuthRoleRevokePermissionResponse>
    kRoleRevokePermission{"/etcdserverpb.Auth/RoleRevokePermission"};

// Streams.
inline constexpr std::string_view kRangeStreamMethod = "/etcdserverpb.KV/RangeStream";
inline constexpr std::string_view kWatchMethod = "/etcdserverpb.Watch/Watch";
inline constexpr std::string_view kLeaseKeepAliveMethod = "/etcdserverpb.Lease/LeaseKeepAlive";
inline constexpr std::string_view kSnapshotMethod = "/etcdserverpb.Maintenance/Snapshot";

}  // namespace client
