// What a TlsServer shares with its connections: the context made from the files as they were last
// seen, and the list of revoked serials. Internal to net's TLS sources; thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "net/openssl_ptr.h"
#include "net/tls.h"

namespace net {

// Changes whenever a file is written, replaced or removed.
struct FileStamp {
  uint64_t inode = 0;
  int64_t size = -1;  // -1: missing
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
  bool operator==(const FileStamp&) const = default;
};
FileStamp StampOf(const std::string& path);

using SerialSet = std::unordered_set<std::string>;  // hex

struct TlsServer::State {
  std::mutex mutex;
  std::shared_ptr<SSL_CTX> context;  // guarded by mutex
  std::vector<FileStamp> stamps;     // guarded by mutex: of the files `context` was made from
  FileStamp crl_stamp;               // guarded by mutex
  std::shared_ptr<const SerialSet> revoked;  // guarded by mutex

  // The revoked serials of the file as it is now.
  absl::StatusOr<std::shared_ptr<const SerialSet>> Revoked(const std::string& crl_file);
};

std::string SerialHex(const ASN1_INTEGER* serial);

// The callbacks a context needs for its connections; in tls_stream.cc.
void SetUpTlsCallbacks(SSL_CTX* context, const TlsOptions& options);
// For the verify callback: the serials the server refuses.
struct TlsServerAccess {
  static TlsServer::State& StateOf(TlsServer& server);
};

}  // namespace net
