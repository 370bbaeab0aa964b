#include "client/channel.h"

#include <google/protobuf/message_lite.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/support/channel_arguments.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <limits>

#include "base/files.h"
#include "base/status.h"

namespace client {
namespace {

// gRPC for Go raises a shorter keepalive time to this; grpc here would ping as told and be sent
// away by the server.
constexpr base::Duration kKeepaliveTimeMin = std::chrono::seconds(10);
// How long Pick() sleeps on one channel's state before it looks at the others.
constexpr std::chrono::milliseconds kPickSlice(5);

struct TlsMaterial {
  std::string certificate, key, roots;
};

template <typename T, void (*kFree)(T*)>
struct Freer {
  void operator()(T* object) const { kFree(object); }
};
struct BioFreer {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using Bio = std::unique_ptr<BIO, BioFreer>;
using Certificate = std::unique_ptr<X509, Freer<X509, X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY, EVP_PKEY_free>>;

Bio BioOf(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

bool HasPem(const std::string& text, std::string_view kind) {
  const size_t begin = text.find("-----BEGIN ");
  return begin != std::string::npos && text.find(kind, begin) != std::string::npos;
}

absl::Status CheckKeyPair(const std::string& certificate_pem, const std::string& key_pem) {
  const Certificate certificate(
      PEM_read_bio_X509(BioOf(certificate_pem).get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr && HasPem(certificate_pem, "PRIVATE KEY-----")) {
    return absl::InvalidArgumentError(
        "tls: failed to find certificate PEM data in certificate input, but did find a private "
        "key; PEM inputs may have been switched");
  }
  if (certificate == nullptr) {
    return absl::InvalidArgumentError("tls: failed to find any PEM data in certificate input");
  }
  const Key key(PEM_read_bio_PrivateKey(BioOf(key_pem).get(), nullptr, nullptr, nullptr));
  if (key == nullptr) {
    return absl::InvalidArgumentError("tls: failed to find any PEM data in key input");
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError("tls: private key does not match public key");
  }
  return absl::OkStatus();
}

absl::StatusOr<TlsMaterial> ReadTls(const TlsOptions& tls) {
  base::Files& files = base::PosixFiles();
  TlsMaterial material;
  if (!tls.ca_file.empty()) {
    ASSIGN_OR_RETURN(material.roots, base::ReadFile(files, tls.ca_file));
    const Certificate first(
        PEM_read_bio_X509(BioOf(material.roots).get(), nullptr, nullptr, nullptr));
    if (first == nullptr) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                              "tls: no certificate in the CA file {}", tls.ca_file);
    }
  } else if (auto system = base::ReadFile(files, "/etc/ssl/certs/ca-certificates.crt");
             system.ok()) {
    material.roots = *std::move(system);
  }
  if (tls.cert_file.empty() && tls.key_file.empty()) return material;
  if (tls.cert_file.empty() || tls.key_file.empty()) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "KeyFile and CertFile must both be present[key: {}, cert: {}]",
                            tls.key_file, tls.cert_file);
  }
  ASSIGN_OR_RETURN(material.certificate, base::ReadFile(files, tls.cert_file));
  ASSIGN_OR_RETURN(material.key, base::ReadFile(files, tls.key_file));
  RETURN_IF_ERROR(CheckKeyPair(material.certificate, material.key));
  return material;
}

std::shared_ptr<grpc::ChannelCredentials> TlsCredentials(const TlsMaterial& material,
                                                         bool skip_verify) {
  if (!skip_verify) {
    return grpc::SslCredentials({material.roots, material.key, material.certificate});
  }
  // Only these credentials can be told to accept any certificate.
  namespace tls = grpc::experimental;
  std::vector<tls::IdentityKeyCertPair> pairs;
  if (!material.certificate.empty()) pairs.push_back({material.key, material.certificate});
  tls::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
  if (!material.roots.empty() || !pairs.empty()) {
    options.set_certificate_provider(
        std::make_shared<tls::StaticDataCertificateProvider>(material.roots, pairs));
    if (!material.roots.empty()) options.watch_root_certs();
    if (!pairs.empty()) options.watch_identity_key_cert_pairs();
  }
  return tls::TlsCredentials(options);
}

int Milliseconds(base::Duration duration) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return static_cast<int>(std::min<int64_t>(ms, std::numeric_limits<int>::max()));
}

grpc::ChannelArguments Arguments(const Options& options, const Endpoint& endpoint, bool secure) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(
      options.response_bytes_max == 0
          ? -1
          : static_cast<int>(
                std::min<uint64_t>(options.response_bytes_max, std::numeric_limits<int>::max())));
  arguments.SetMaxSendMessageSize(-1);
  if (options.read_ahead_bytes > 0) {
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                     static_cast<int>(options.read_ahead_bytes));
  }
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 3000);
  if (options.keepalive_time.count() > 0) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                     Milliseconds(std::max(options.keepalive_time, kKeepaliveTimeMin)));
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    if (options.keepalive_timeout.count() > 0) {
      arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, Milliseconds(options.keepalive_timeout));
    }
  }
  if (!endpoint.authority.empty()) {
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, endpoint.authority);
  }
  if (secure && !options.tls.server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls.server_name);
  } else if (secure && endpoint.target.substr(0, 5) == "unix:") {
    arguments.SetSslTargetNameOverride(endpoint.host.empty() ? "localhost" : endpoint.host);
  }
  return arguments;
}

bool IsSecure(const Options& options, const Endpoint& endpoint) {
  switch (endpoint.security) {
    case EndpointSecurity::kAlways:
      return true;
    case EndpointSecurity::kNever:
      return false;
    case EndpointSecurity::kAsConfigured:
      break;
  }
  return !options.insecure_transport || !options.tls.cert_file.empty() ||
         !options.tls.ca_file.empty() || options.tls.skip_verify;
}

}  // namespace

Deadline DeadlineAfter(base::Duration timeout) {
  if (timeout.count() <= 0) return Deadline::max();
  return std::chrono::system_clock::now() + std::chrono::duration_cast<Deadline::duration>(timeout);
}

absl::StatusOr<std::unique_ptr<Connections>> Connections::Open(const Options& options) {
  if (options.endpoints.empty()) {
    return absl::FailedPreconditionError("etcdclient: no available endpoints");
  }
  // What the transport has to say about failed handshakes and the like ends up in the status of the
  // calls.
  if (!options.transport_logs) gpr_set_log_function([](gpr_log_func_args*) {});
  const TlsOptions& tls = options.tls;
  TlsMaterial material;
  bool tls_read = false;
  auto connections = std::make_unique<Connections>();
  for (const std::string& text : options.endpoints) {
    Connection connection{.endpoint = ParseEndpoint(text), .channel = nullptr};
    const bool secure = IsSecure(options, connection.endpoint);
    // A certificate that is named is read even when nothing uses it, so that a wrong name is
    // noticed.
    if (!tls_read &&
        (secure || !tls.cert_file.empty() || !tls.key_file.empty() || !tls.ca_file.empty())) {
      ASSIGN_OR_RETURN(material, ReadTls(tls));
      tls_read = true;
    }
    connection.channel = grpc::CreateCustomChannel(
        connection.endpoint.target,
        secure ? TlsCredentials(material, tls.skip_verify) : grpc::InsecureChannelCredentials(),
        Arguments(options, connection.endpoint, secure));
    connections->connections_.push_back(std::move(connection));
  }
  return connections;
}

absl::StatusOr<const Connection*> Connections::Pick(Deadline deadline) {
  const size_t count = connections_.size();
  const size_t first = preferred_.load(std::memory_order_relaxed);
  if (count == 1) return &connections_[0];
  for (;;) {
    for (size_t i = 0; i < count; ++i) {
      const Connection& connection = connections_[(first + i) % count];
      if (connection.channel->GetState(true) == GRPC_CHANNEL_READY) {
        preferred_.store((first + i) % count, std::memory_order_relaxed);
        return &connection;
      }
    }
    if (std::chrono::system_clock::now() >= deadline) {
      return absl::DeadlineExceededError("context deadline exceeded");
    }
    grpc::Channel& waited = *connections_[first].channel;
    waited.WaitForStateChange(waited.GetState(true),
                              std::min(deadline, std::chrono::system_clock::now() + kPickSlice));
  }
}

void Connections::MoveOn(const Connection* failed) {
  const auto index = static_cast<size_t>(failed - connections_.data());
  preferred_.store((index + 1) % connections_.size(), std::memory_order_relaxed);
}

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(status.error_code());
  if (code == absl::StatusCode::kDeadlineExceeded) {
    return absl::DeadlineExceededError("context deadline exceeded");
  }
  constexpr std::string_view kTooLarge = "Received message larger than max";
  if (std::string_view(status.error_message()).substr(0, kTooLarge.size()) == kTooLarge) {
    return absl::Status(code, "grpc: r" + status.error_message().substr(1));  // gRPC for Go's text
  }
  return absl::Status(code, status.error_message());
}

grpc::ByteBuffer Serialize(const google::protobuf::MessageLite& message) {
  grpc::Slice slice(message.ByteSizeLong());
  // The size was just computed and cached, and a new slice is unshared, so writing into it is fine.
  message.SerializeWithCachedSizesToArray(const_cast<uint8_t*>(slice.begin()));
  return grpc::ByteBuffer(&slice, 1);
}

bool Parse(const grpc::ByteBuffer& buffer, google::protobuf::MessageLite* message) {
  grpc::Slice slice;
  if (buffer.Length() == 0) {
    message->Clear();
    return true;
  }
  if (!buffer.TrySingleSlice(&slice).ok() && !buffer.DumpToSingleSlice(&slice).ok()) return false;
  if (slice.size() > static_cast<size_t>(std::numeric_limits<int>::max())) return false;
  return message->ParseFromArray(slice.begin(), static_cast<int>(slice.size()));
}

}  // namespace client
