#include <fmt/format.h>

#include "base/status.h"
#include "commands.h"
#include "kv_requests.h"
#include "print.h"
#include "proto/auth.pb.h"
#include "proto/rpc.pb.h"
#include "session.h"
#include "text.h"

namespace engramctl {
namespace {

constexpr std::string_view kRoot = "root";

// Calls `method` and prints its answer: json and protobuf as it is, else `line`.
template <typename Request, typename Response>
int CallAndPrint(const Invocation& invocation, const client::Unary<Request, Response>& method,
                 const Request& request, std::string_view line) {
  Session session;
  if (const int code = OpenSession(invocation, kNoFieldsNoTable, &session); code != 0) return code;
  const auto response = session.client->Call(method, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (!EmitMessage(session, *response)) Emit(line);
  return kExitOk;
}

// --- auth ---

int RefuseWords(const Invocation& invocation, std::string_view name) {
  if (invocation.words.empty()) return 0;
  return Fail(kExitBadArguments, fmt::format("{} command does not accept any arguments", name));
}

int RunAuthStatus(const Invocation& invocation) {
  if (const int code = RefuseWords(invocation, "auth status"); code != 0) return code;
  Session session;
  if (const int code = OpenSession(invocation, kNoFieldsNoTable, &session); code != 0) return code;
  const auto response =
      session.client->Call(client::kAuthStatus, pb::AuthStatusRequest(), session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (!EmitMessage(session, *response)) {
    Emit(fmt::format("Authentication Status: {}\nAuthRevision: {}\n", response->enabled(),
                     response->authrevision()));
  }
  return kExitOk;
}

// Makes user root what AuthEnable demands: a holder of role root.
absl::Status GiveRootItsRole(const Session& session) {
  pb::AuthRoleAddRequest add;
  add.set_name(kRoot.data(), kRoot.size());
  const auto added = session.client->Call(client::kRoleAdd, add, session.call_options());
  if (!added.ok() && base::Message(added.status()) != "etcdserver: role name already exists") {
    return added.status();
  }
  pb::AuthUserGrantRoleRequest grant;
  grant.set_user(kRoot.data(), kRoot.size());
  grant.set_role(kRoot.data(), kRoot.size());
  return session.client->Call(client::kUserGrantRole, grant, session.call_options()).status();
}

int RunAuthEnable(const Invocation& invocation) {
  if (const int code = RefuseWords(invocation, "auth enable"); code != 0) return code;
  Session session;
  if (const int code = OpenSession(invocation, kNoFieldsNoTable, &session); code != 0) return code;
  auto response =
      session.client->Call(client::kAuthEnable, pb::AuthEnableRequest(), session.call_options());
  if (base::Message(response.status()) == "etcdserver: root user does not have root role") {
    if (const absl::Status status = GiveRootItsRole(session); !status.ok()) return FailCall(status);
    response =
        session.client->Call(client::kAuthEnable, pb::AuthEnableRequest(), session.call_options());
  }
  if (!response.ok()) return FailCall(response.status());
  if (!EmitMessage(session, *response)) Emit("Authentication Enabled\n");
  return kExitOk;
}

int RunAuthDisable(const Invocation& invocation) {
  if (const int code = RefuseWords(invocation, "auth disable"); code != 0) return code;
  return CallAndPrint(invocation, client::kAuthDisable, pb::AuthDisableRequest(),
                      "Authentication Disabled\n");
}

// --- user ---

constexpr FlagSpec kUserAddFlags[] = {
    {.name = "interactive",
     .type = FlagType::kBool,
     .default_value = "true",
     .help = "ask for the password twice; false: read it from standard input"},
    {.name = "new-user-password", .help = "the password"},
    {.name = "no-password",
     .type = FlagType::kBool,
     .help = "a user that only client certificates identify"}};
constexpr FlagSpec kUserGetFlags[] = {{.name = "detail",
                                       .type = FlagType::kBool,
                                       .help = "show the permissions of the user's roles"}};
constexpr FlagSpec kUserPasswdFlags[] = {
    {.name = "interactive",
     .type = FlagType::kBool,
     .default_value = "true",
     .help = "ask for the password twice; false: read it from standard input"}};

int AskNewPassword(const std::string& user, std::string* password) {
  std::string again;
  if (!ReadPassword(fmt::format("Password of {}: ", user), password)) {
    return Fail(kExitBadArguments, "failed to ask password: EOF");
  }
  if (password->empty()) return Fail(kExitBadArguments, "empty password");
  if (!ReadPassword(fmt::format("Type password of {} again for confirmation: ", user), &again)) {
    return Fail(kExitBadArguments, "failed to ask password: EOF");
  }
  if (*password != again) return Fail(kExitBadArguments, "given passwords are different");
  return 0;
}

// The password of a new or changed user: asked for, or the first word of standard input.
int NewPassword(bool interactive, const std::string& user, std::string* password) {
  if (interactive) return AskNewPassword(user, password);
  std::string line;
  ReadLine(&line);
  const std::string_view text = TrimSpace(line);
  *password = text.substr(0, text.find(' '));
  return 0;
}

int RunUserAdd(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "user add command requires user name as its argument");
  }
  const FlagSet& flags = *invocation.flags;
  const std::string& word = invocation.words[0];
  const size_t colon = word.find(':');
  std::string user = word;
  std::string password;
  pb::AuthUserAddRequest request;
  request.mutable_options()->set_no_password(flags.Bool("no-password"));
  if (flags.Bool("no-password")) {
    user = word;
  } else if (!flags.String("new-user-password").empty()) {
    password = flags.String("new-user-password");
  } else if (colon != std::string::npos) {
    user = word.substr(0, colon);
    password = word.substr(colon + 1);
    if (user.empty()) return Fail(kExitBadArguments, "empty user name is not allowed");
  } else if (const int code = NewPassword(flags.Bool("interactive"), user, &password); code != 0) {
    return code;
  }
  request.set_name(user);
  request.set_password(password);
  return CallAndPrint(invocation, client::kUserAdd, request,
                      fmt::format("User {} created\n", user));
}

int RunUserDelete(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "user delete command requires user name as its argument");
  }
  pb::AuthUserDeleteRequest request;
  request.set_name(invocation.words[0]);
  return CallAndPrint(invocation, client::kUserDelete, request,
                      fmt::format("User {} deleted\n", request.name()));
}

int RunUserPasswd(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "user passwd command requires user name as its argument");
  }
  pb::AuthUserChangePasswordRequest request;
  request.set_name(invocation.words[0]);
  std::string password;
  const bool interactive = invocation.flags->Bool("interactive");
  if (const int code = NewPassword(interactive, request.name(), &password); code != 0) return code;
  request.set_password(password);
  return CallAndPrint(invocation, client::kUserChangePassword, request, "Password updated\n");
}

int RunUserGrantRole(const Invocation& invocation) {
  if (invocation.words.size() != 2) {
    return Fail(kExitBadArguments,
                "user grant command requires user name and role name as its argument");
  }
  pb::AuthUserGrantRoleRequest request;
  request.set_user(invocation.words[0]);
  request.set_role(invocation.words[1]);
  return CallAndPrint(
      invocation, client::kUserGrantRole, request,
      fmt::format("Role {} is granted to user {}\n", request.role(), request.user()));
}

int RunUserRevokeRole(const Invocation& invocation) {
  if (invocation.words.size() != 2) {
    return Fail(kExitBadArguments,
                "user revoke-role requires user name and role name as its argument");
  }
  pb::AuthUserRevokeRoleRequest request;
  request.set_name(invocation.words[0]);
  request.set_role(invocation.words[1]);
  return CallAndPrint(
      invocation, client::kUserRevokeRole, request,
      fmt::format("Role {} is revoked from user {}\n", request.role(), request.name()));
}

int RunUserList(const Invocation& invocation) {
  if (!invocation.words.empty()) {
    return Fail(kExitBadArguments, "user list command requires no arguments");
  }
  Session session;
  if (const int code = OpenSession(invocation, kNoFieldsNoTable, &session); code != 0) return code;
  const auto response =
      session.client->Call(client::kUserList, pb::AuthUserListRequest(), session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (EmitMessage(session, *response)) return kExitOk;
  std::string out;
  for (const std::string& user : response->users()) out += user + '\n';
  Emit(out);
  return kExitOk;
}

// --- role ---

constexpr FlagSpec kPermissionFlags[] = {
    {.name = "prefix", .type = FlagType::kBool, .help = "all keys with this prefix"},
    {.name = "from-key", .type = FlagType::kBool, .help = "all keys from this one on"}};

std::string PermissionLine(const authpb::Permission& permission) {
  const std::string& key = permission.key();
  const std::string& end = permission.range_end();
  if (end.empty()) return fmt::format("\t{}\n", key);
  if (end == std::string_view("\0", 1)) return fmt::format("\t[{}, <open ended>\n", key);
  const bool prefix = !key.empty() && PrefixEnd(key) == end;
  return fmt::format("\t[{}, {}){}\n", key, end, prefix ? fmt::format(" (prefix {})", key) : "");
}

std::string RoleText(const std::string& role, const pb::AuthRoleGetResponse& response) {
  std::string out = fmt::format("Role {}\nKV Read:\n", role);
  for (const authpb::Permission& permission : response.perm()) {
    if (permission.permtype() != authpb::Permission::WRITE) out += PermissionLine(permission);
  }
  out += "KV Write:\n";
  for (const authpb::Permission& permission : response.perm()) {
    if (permission.permtype() != authpb::Permission::READ) out += PermissionLine(permission);
  }
  return out;
}

absl::StatusOr<pb::AuthRoleGetResponse> GetRole(const Session& session, const std::string& role) {
  pb::AuthRoleGetRequest request;
  request.set_role(role);
  return session.client->Call(client::kRoleGet, request, session.call_options());
}

int RunUserGet(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "user get command requires user name as its argument");
  }
  Session session;
  if (const int code = OpenSession(invocation, kNoFieldsNoTable, &session); code != 0) return code;
  pb::AuthUserGetRequest request;
  request.set_name(invocation.words[0]);
  const auto response = session.client->Call(client::kUserGet, request, session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (!invocation.flags->Bool("detail")) {
    if (EmitMessage(session, *response)) return kExitOk;
    std::string out = fmt::format("User: {}\nRoles:", request.name());
    for (const std::string& role : response->roles()) out += ' ' + role;
    Emit(out + '\n');
    return kExitOk;
  }
  Emit(fmt::format("User: {}\n", request.name()));
  for (const std::string& role : response->roles()) {
    Emit("\n");
    const absl::StatusOr<pb::AuthRoleGetResponse> details = GetRole(session, role);
    if (!details.ok()) return FailCall(details.status());
    if (!EmitMessage(session, *details)) Emit(RoleText(role, *details));
  }
  return kExitOk;
}

int RunRoleAdd(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "role add command requires role name as its argument");
  }
  pb::AuthRoleAddRequest request;
  request.set_name(invocation.words[0]);
  return CallAndPrint(invocation, client::kRoleAdd, request,
                      fmt::format("Role {} created\n", request.name()));
}

int RunRoleDelete(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "role delete command requires role name as its argument");
  }
  pb::AuthRoleDeleteRequest request;
  request.set_role(invocation.words[0]);
  return CallAndPrint(invocation, client::kRoleDelete, request,
                      fmt::format("Role {} deleted\n", request.role()));
}

int RunRoleGet(const Invocation& invocation) {
  if (invocation.words.size() != 1) {
    return Fail(kExitBadArguments, "role get command requires role name as its argument");
  }
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  const std::string& role = invocation.words[0];
  const absl::StatusOr<pb::AuthRoleGetResponse> response = GetRole(session, role);
  if (!response.ok()) return FailCall(response.status());
  if (EmitMessage(session, *response)) return kExitOk;
  std::string out;
  if (session.format == Format::kFields) {
    out = HeaderFields(response->header(), session.hex);
    for (const authpb::Permission& permission : response->perm()) {
      // Two blanks: that is how this one line looks in etcdctl.
      out += Field("PermType",
                   fmt::format(" {}", authpb::Permission::Type_Name(permission.permtype())));
      out += Field("Key", Quote(permission.key()));
      out += Field("RangeEnd", Quote(permission.range_end()));
    }
  } else {
    out = RoleText(role, *response);
  }
  Emit(out);
  return kExitOk;
}

int RunRoleList(const Invocation& invocation) {
  if (!invocation.words.empty()) {
    return Fail(kExitBadArguments, "role list command requires no arguments");
  }
  Session session;
  if (const int code = OpenSession(invocation, kNoTable, &session); code != 0) return code;
  const auto response =
      session.client->Call(client::kRoleList, pb::AuthRoleListRequest(), session.call_options());
  if (!response.ok()) return FailCall(response.status());
  if (EmitMessage(session, *response)) return kExitOk;
  const bool fields = session.format == Format::kFields;
  std::string out = fields ? HeaderFields(response->header(), session.hex) + "\"Roles\" :" : "";
  for (const std::string& role : response->roles()) {
    out += fields ? fmt::format(" {}", Quote(role)) : role + '\n';
  }
  if (fields) out += '\n';
  Emit(out);
  return kExitOk;
}

// Key and end of a permission from `key [endkey]` and the flags. Returns 0 or an exit status.
int PermissionRange(const FlagSet& flags, std::span<const std::string> words, KeyRange* range) {
  const bool prefix = flags.Bool("prefix");
  const bool from_key = flags.Bool("from-key");
  const bool has_end = words.size() > 1 && !words[1].empty();
  if (prefix && from_key) {
    return Fail(kExitBadArguments, "--from-key and --prefix flags are mutually exclusive");
  }
  if (has_end && (prefix || from_key)) {
    return Fail(kExitBadArguments, fmt::format("unexpected endkey argument with --{} flag",
                                               prefix ? "prefix" : "from-key"));
  }
  if (prefix) {
    *range = PrefixRange(words[0]);
  } else if (from_key) {
    *range = FromKeyRange(words[0]);
  } else {
    *range = {words[0].empty() ? std::string(1, '\0') : words[0], has_end ? words[1] : ""};
  }
  return 0;
}

int RunGrantPermission(const Invocation& invocation) {
  const std::vector<std::string>& words = invocation.words;
  if (words.size() < 3) {
    return Fail(kExitBadArguments,
                "role grant command requires role name, permission type, and key [endkey] as its "
                "argument");
  }
  authpb::Permission::Type type = authpb::Permission::READ;
  if (!authpb::Permission::Type_Parse(ToUpper(words[1]), &type)) {
    return Fail(kExitBadArguments, fmt::format("invalid permission type: {}", words[1]));
  }
  KeyRange range;
  if (const int code = PermissionRange(*invocation.flags, std::span(words).subspan(2), &range);
      code != 0) {
    return code;
  }
  pb::AuthRoleGrantPermissionRequest request;
  request.set_name(words[0]);
  request.mutable_perm()->set_permtype(type);
  request.mutable_perm()->set_key(range.key);
  request.mutable_perm()->set_range_end(range.end);
  return CallAndPrint(invocation, client::kRoleGrantPermission, request,
                      fmt::format("Role {} updated\n", words[0]));
}

int RunRevokePermission(const Invocation& invocation) {
  const std::vector<std::string>& words = invocation.words;
  if (words.size() < 2) {
    return Fail(kExitBadArguments,
                "role revoke-permission command requires role name and key [endkey] as its "
                "argument");
  }
  KeyRange range;
  if (const int code = PermissionRange(*invocation.flags, std::span(words).subspan(1), &range);
      code != 0) {
    return code;
  }
  pb::AuthRoleRevokePermissionRequest request;
  request.set_role(words[0]);
  request.set_key(range.key);
  request.set_range_end(range.end);
  std::string what = fmt::format("key {}", range.key);
  if (range.end == std::string_view("\0", 1)) {
    what = fmt::format("range [{}, <open ended>", range.key);
  } else if (!range.end.empty()) {
    what = fmt::format("range [{}, {})", range.key, range.end);
  }
  return CallAndPrint(invocation, client::kRoleRevokePermission, request,
                      fmt::format("Permission of {} is revoked from role {}\n", what, words[0]));
}

}  // namespace

Command AuthCommand() {
  return {
      .name = "auth",
      .usage = "",
      .summary = "Turn authentication on and off",
      .group = kAuthGroup,
      .commands = {
          {.name = "disable", .usage = "", .summary = "Turn it off", .run = RunAuthDisable},
          {.name = "enable", .usage = "", .summary = "Turn it on", .run = RunAuthEnable},
          {.name = "status", .usage = "", .summary = "Say whether it is on", .run = RunAuthStatus},
      }};
}

Command UserCommand() {
  return {.name = "user",
          .usage = "",
          .summary = "Manage users",
          .group = kAuthGroup,
          .commands = {
              {.name = "add",
               .usage = "<user name or user:password> [options]",
               .summary = "Create a user",
               .flags = kUserAddFlags,
               .run = RunUserAdd},
              {.name = "delete",
               .usage = "<user name>",
               .summary = "Delete a user",
               .run = RunUserDelete},
              {.name = "get",
               .usage = "<user name> [options]",
               .summary = "Show a user's roles",
               .flags = kUserGetFlags,
               .run = RunUserGet},
              {.name = "grant-role",
               .usage = "<user name> <role name>",
               .summary = "Give a user a role",
               .run = RunUserGrantRole},
              {.name = "list", .usage = "", .summary = "List all users", .run = RunUserList},
              {.name = "passwd",
               .usage = "<user name> [options]",
               .summary = "Change a user's password",
               .flags = kUserPasswdFlags,
               .run = RunUserPasswd},
              {.name = "revoke-role",
               .usage = "<user name> <role name>",
               .summary = "Take a role from a user",
               .run = RunUserRevokeRole},
          }};
}

Command RoleCommand() {
  return {
      .name = "role",
      .usage = "",
      .summary = "Manage roles",
      .group = kAuthGroup,
      .commands = {
          {.name = "add", .usage = "<role name>", .summary = "Create a role", .run = RunRoleAdd},
          {.name = "delete",
           .usage = "<role name>",
           .summary = "Delete a role",
           .run = RunRoleDelete},
          {.name = "get",
           .usage = "<role name>",
           .summary = "Show a role's permissions",
           .run = RunRoleGet},
          {.name = "grant-permission",
           .usage = "[options] <role name> <permission type> <key> [endkey]",
           .summary = "Allow a role to read or write keys",
           .flags = kPermissionFlags,
           .run = RunGrantPermission},
          {.name = "list", .usage = "", .summary = "List all roles", .run = RunRoleList},
          {.name = "revoke-permission",
           .usage = "<role name> <key> [endkey]",
           .summary = "Take a permission from a role",
           .flags = kPermissionFlags,
           .run = RunRevokePermission},
      }};
}

}  // namespace engramctl
