#include "stores/s3_client.h"

#include <curl/curl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/status.h"
#include "stores/s3_errors.h"
#include "vault/crypto.h"

namespace stores {
namespace {

constexpr size_t kBodyBytesMax = size_t{8} << 20;  // a list of 1000 long keys is far below
constexpr size_t kHeadersMax = 200;
constexpr size_t kHeaderBytesMax = 8192;
constexpr size_t kIdleHandlesMax = 16;
constexpr long kConnectTimeoutMs = 10'000;
constexpr long kStallSeconds = 60;  // without a byte, whatever the deadline

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool IsHostCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == ':' || c == '[' || c == ']';
}

// The URL of the bucket, without a slash at its end.
absl::StatusOr<std::string> BaseUrl(const S3Endpoint& endpoint) {
  std::string_view host = endpoint.url;
  std::string_view scheme;
  for (const std::string_view known : {"https://", "http://"}) {
    if (host.starts_with(known)) scheme = known;
  }
  host.remove_prefix(scheme.size());
  if (host.ends_with('/')) host.remove_suffix(1);
  if (scheme.empty() || host.empty() || !std::all_of(host.begin(), host.end(), IsHostCharacter)) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "S3 endpoint: expected https://HOST or https://HOST:PORT, without a "
                            "path or credentials");
  }
  const std::string& bucket = endpoint.bucket;
  const bool named =
      bucket.size() >= 3 && bucket.size() <= 63 &&
      std::all_of(bucket.begin(), bucket.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
      });
  if (!named) {
    return base::MakeStatus(absl::StatusCode::kInvalidArgument,
                            "S3 bucket \"{}\": a name has 3 to 63 lower-case letters, digits, '.' "
                            "and '-'",
                            bucket.substr(0, 80));
  }
  return endpoint.path_style ? fmt::format("{}{}/{}", scheme, host, bucket)
                             : fmt::format("{}{}.{}", scheme, bucket, host);
}

// What is on its way in one request.
struct Transfer {
  const S3Request& request;
  const Deadline& deadline;
  S3Answer answer;
  uint64_t sent = 0;
  size_t headers = 0;
  bool body_begun = false;
  absl::Status failure;  // ours, as opposed to the network's
};

size_t OnRead(char* out, size_t size, size_t count, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  const S3Request& request = transfer.request;
  const size_t wanted =
      static_cast<size_t>(std::min<uint64_t>(size * count, request.bytes - transfer.sent));
  if (wanted == 0) return 0;
  if (request.content == nullptr) {
    std::memcpy(out, request.body.data() + transfer.sent, wanted);
    transfer.sent += wanted;
    return wanted;
  }
  const auto got = request.content->ReadToSend(request.offset + transfer.sent, out, wanted);
  if (!got.ok() || *got == 0) {
    transfer.failure =
        got.ok() ? absl::DataLossError("what is to be stored ends too early") : got.status();
    return CURL_READFUNC_ABORT;
  }
  transfer.sent += *got;
  return *got;
}

// libcurl sends again what it sent on a connection that turned out closed.
int OnSeek(void* user, curl_off_t offset, int origin) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  if (origin != SEEK_SET || offset < 0) return CURL_SEEKFUNC_FAIL;
  transfer.sent = static_cast<uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

size_t OnHeader(char* data, size_t size, size_t count, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  std::string_view line(data, size * count);
  const size_t taken = line.size();
  if (line.starts_with("HTTP/")) {  // also of the answer behind a "100 Continue"
    transfer.answer.headers.clear();
    transfer.headers = 0;
    return taken;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || line.size() > kHeaderBytesMax ||
      ++transfer.headers > kHeadersMax) {
    return taken;
  }
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), Lower);
  line.remove_prefix(colon + 1);
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n' || line.back() == ' '))
    line.remove_suffix(1);
  while (line.starts_with(' ')) line.remove_prefix(1);
  transfer.answer.headers[name] = line;
  return taken;
}

size_t OnBody(char* data, size_t size, size_t count, void* user);

int OnProgress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(user)->deadline.Cancelled() ? 1 : 0;
}

absl::Status CertificateProblem(std::string_view request, long verify_result,
                                std::string_view detail, std::string_view ca_file) {
  std::string advice;
  switch (verify_result) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      advice = "renew the server's certificate, or set this machine's clock";
      break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      advice = "set this machine's clock, or wait";
      break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      advice = ca_file.empty() ? "give the server's CA as the store's ca_file"
                               : fmt::format("{} is not the server's CA", ca_file);
      break;
    default:
      advice = "check the store's endpoint and ca_file";
  }
  return base::MakeStatus(absl::StatusCode::kFailedPrecondition, "{}: {}; {}", request, detail,
                          advice);
}

}  // namespace

struct S3Client::Handle {
  CURL* curl = ::curl_easy_init();
  Handle() { CHECK(curl != nullptr); }
  ~Handle() { ::curl_easy_cleanup(curl); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  template <typename Value>
  void Set(CURLoption option, Value value) {
    CHECK(::curl_easy_setopt(curl, option, value) == CURLE_OK);
  }
  long Info(CURLINFO info) const {
    long value = 0;
    ::curl_easy_getinfo(curl, info, &value);
    return value;
  }
};

namespace {

// The status is known once the body begins.
struct BodyContext {
  Transfer* transfer;
  CURL* curl;
};

size_t OnBody(char* data, size_t size, size_t count, void* user) {
  const BodyContext& context = *static_cast<BodyContext*>(user);
  Transfer& transfer = *context.transfer;
  const std::string_view piece(data, size * count);
  if (!transfer.body_begun) {
    ::curl_easy_getinfo(context.curl, CURLINFO_RESPONSE_CODE, &transfer.answer.status);
    transfer.body_begun = true;
    if (transfer.answer.ok() && transfer.request.before_body) {
      transfer.failure = transfer.request.before_body(transfer.answer);
      if (!transfer.failure.ok()) return 0;
    }
  }
  if (transfer.answer.ok() && transfer.request.sink != nullptr) {
    transfer.failure = transfer.request.sink->Write(piece);
    return transfer.failure.ok() ? piece.size() : 0;
  }
  if (piece.size() > kBodyBytesMax - transfer.answer.body.size()) {
    transfer.failure = base::MakeStatus(
        absl::StatusCode::kInternal, "the server's answer has more than {} bytes", kBodyBytesMax);
    return 0;
  }
  transfer.answer.body.append(piece);
  return piece.size();
}

}  // namespace

std::string S3Checksum(const base::Digest& sha256) { return vault::ToBase64(sha256) + "="; }

std::string S3ChecksumHeader(const base::Digest& sha256) {
  return fmt::format("x-amz-checksum-sha256: {}", S3Checksum(sha256));
}

std::string PercentEncode(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes);
    if (plain) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string EncodeQuery(const std::map<std::string, std::string>& query) {
  std::string out;
  // Names are plain ASCII, so their order is that of their encoded form.
  for (const auto& [name, value] : query) {
    out += fmt::format("{}{}={}", out.empty() ? "" : "&", PercentEncode(name, false),
                       PercentEncode(value, false));
  }
  return out;
}

std::string_view S3Answer::Header(std::string_view name) const {
  const auto header = headers.find(name);
  return header == headers.end() ? std::string_view() : std::string_view(header->second);
}

S3Client::S3Client(const base::Clock& clock, S3Endpoint endpoint, std::string base_url,
                   S3CredentialsSource credentials)
    : clock_(clock),
      endpoint_(std::move(endpoint)),
      base_url_(std::move(base_url)),
      credentials_(std::move(credentials)) {}

S3Client::~S3Client() = default;

absl::StatusOr<std::unique_ptr<S3Client>> S3Client::Open(const base::Clock& clock,
                                                         S3Endpoint endpoint,
                                                         S3CredentialsSource credentials) {
  static const bool ready = ::curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  CHECK(ready);
  ASSIGN_OR_RETURN(std::string base_url, BaseUrl(endpoint));
  return std::unique_ptr<S3Client>(
      new S3Client(clock, std::move(endpoint), std::move(base_url), std::move(credentials)));
}

std::unique_ptr<S3Client::Handle> S3Client::TakeHandle() {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Handle> handle = std::move(idle_.back());
      idle_.pop_back();
      return handle;
    }
  }
  return std::make_unique<Handle>();
}

void S3Client::GiveBack(std::unique_ptr<Handle> handle) {
  ::curl_easy_reset(handle->curl);  // drops the credentials, keeps the connection
  std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleHandlesMax) idle_.push_back(std::move(handle));
}

std::string S3Client::UrlOf(const S3Request& request) const {
  std::string url = fmt::format("{}/{}", base_url_, PercentEncode(request.key, true));
  // A bucket of path style is addressed without the slash.
  if (request.key.empty() && endpoint_.path_style) url.pop_back();
  if (!request.query.empty()) url += fmt::format("?{}", EncodeQuery(request.query));
  return url;
}

absl::StatusOr<S3Answer> S3Client::Send(const S3Request& request, const Deadline& deadline) {
  RETURN_IF_ERROR(deadline.Check(clock_));
  absl::StatusOr<S3Credentials> credentials = absl::InternalError("");
  {
    std::lock_guard lock(credentials_mutex_);
    credentials = credentials_();
  }
  RETURN_IF_ERROR(credentials.status());

  std::unique_ptr<Handle> handle = TakeHandle();
  Transfer transfer{.request = request, .deadline = deadline};
  BodyContext body{.transfer = &transfer, .curl = handle->curl};
  char detail[CURL_ERROR_SIZE] = "";
  const std::string url = UrlOf(request);
  const std::string provider = fmt::format("aws:amz:{}:s3", endpoint_.region);
  curl_slist* headers = nullptr;
  const auto add_header = [&headers](const std::string& line) {
    headers = ::curl_slist_append(headers, line.c_str());
    CHECK(headers != nullptr);
  };
  add_header(fmt::format("x-amz-content-sha256: {}", base::DigestToHex(request.sha256)));
  if (!credentials->session_token.empty()) {
    add_header(fmt::format("x-amz-security-token: {}", credentials->session_token.view()));
  }
  for (const std::string& line : request.headers) add_header(line);

  handle->Set(CURLOPT_URL, url.c_str());
  handle->Set(CURLOPT_PROTOCOLS_STR, "http,https");
  handle->Set(CURLOPT_PATH_AS_IS, 1L);
  handle->Set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  handle->Set(CURLOPT_NOSIGNAL, 1L);
  handle->Set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!endpoint_.ca_file.empty()) {
    handle->Set(CURLOPT_CAINFO, endpoint_.ca_file.c_str());
    handle->Set(CURLOPT_CAPATH, static_cast<const char*>(nullptr));
  }
  handle->Set(CURLOPT_AWS_SIGV4, provider.c_str());
  handle->Set(CURLOPT_USERNAME, credentials->access_key.c_str());
  // Ends in a zero, being the whole of a string.
  handle->Set(CURLOPT_PASSWORD, credentials->secret_key.view().data());
  handle->Set(CURLOPT_HTTPHEADER, headers);
  handle->Set(CURLOPT_CONNECTTIMEOUT_MS, kConnectTimeoutMs);
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.Left(clock_));
  handle->Set(CURLOPT_TIMEOUT_MS,
              static_cast<long>(std::clamp<int64_t>(left.count(), 1, 7 * 24 * 3'600'000)));
  handle->Set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  handle->Set(CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  handle->Set(CURLOPT_ERRORBUFFER, detail);
  handle->Set(CURLOPT_HEADERFUNCTION, &OnHeader);
  handle->Set(CURLOPT_HEADERDATA, &transfer);
  handle->Set(CURLOPT_WRITEFUNCTION, &OnBody);
  handle->Set(CURLOPT_WRITEDATA, &body);
  handle->Set(CURLOPT_XFERINFOFUNCTION, &OnProgress);
  handle->Set(CURLOPT_XFERINFODATA, &transfer);
  handle->Set(CURLOPT_NOPROGRESS, 0L);
  if (request.method == "HEAD") {
    handle->Set(CURLOPT_NOBODY, 1L);
  } else if (request.method == "PUT" || request.method == "POST") {
    handle->Set(CURLOPT_UPLOAD, 1L);
    handle->Set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.bytes));
    handle->Set(CURLOPT_READFUNCTION, &OnRead);
    handle->Set(CURLOPT_READDATA, &transfer);
    handle->Set(CURLOPT_SEEKFUNCTION, &OnSeek);
    handle->Set(CURLOPT_SEEKDATA, &transfer);
  }
  if (request.method != "HEAD") handle->Set(CURLOPT_CUSTOMREQUEST, request.method.c_str());

  const CURLcode code = ::curl_easy_perform(handle->curl);
  ::curl_slist_free_all(headers);
  transfer.answer.status = handle->Info(CURLINFO_RESPONSE_CODE);
  const long verify_result = handle->Info(CURLINFO_SSL_VERIFYRESULT);
  GiveBack(std::move(handle));

  RETURN_IF_ERROR(transfer.failure);
  if (code == CURLE_OK) {
    NoteDate(transfer.answer);
    return std::move(transfer.answer);
  }
  const std::string what = fmt::format("{} {}", request.method, url);
  const std::string_view why = detail[0] != '\0' ? detail : ::curl_easy_strerror(code);
  RETURN_IF_ERROR(base::Annotate(deadline.Check(clock_), what));
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
      return CertificateProblem(what, verify_result, why, endpoint_.ca_file);
    case CURLE_SSL_CACERT_BADFILE:
      return base::MakeStatus(absl::StatusCode::kFailedPrecondition,
                              "{}: {}; correct the store's ca_file", what, why);
    default:
      return base::MakeStatus(absl::StatusCode::kUnavailable, "{}: {}", what, why);
  }
}

absl::StatusOr<S3Answer> S3Client::SendOk(const S3Request& request, const Deadline& deadline) {
  ASSIGN_OR_RETURN(S3Answer answer, Send(request, deadline));
  if (answer.ok()) return answer;
  return ErrorOf(request, answer);
}

absl::Status S3Client::ErrorOf(const S3Request& request, const S3Answer& answer) const {
  S3Failure failure{.request = fmt::format("{} {}", request.method, UrlOf(request)),
                    .bucket = endpoint_.bucket,
                    .region = endpoint_.region,
                    .http_status = answer.status,
                    .error = ParseS3Error(answer.body),
                    .clock_skew = clock_skew()};
  if (failure.error.region.empty()) failure.error.region = answer.Header("x-amz-bucket-region");
  if (failure.error.request_id.empty())
    failure.error.request_id = answer.Header("x-amz-request-id");
  return ToStatus(failure);
}

void S3Client::NoteDate(const S3Answer& answer) {
  const std::string date(answer.Header("date"));
  const time_t seconds = date.empty() ? -1 : ::curl_getdate(date.c_str(), nullptr);
  if (seconds <= 0) return;
  std::lock_guard lock(mutex_);
  clock_skew_ = std::chrono::seconds(seconds) - clock_.Wall();
}

std::optional<base::Duration> S3Client::clock_skew() const {
  std::lock_guard lock(mutex_);
  return clock_skew_;
}

}  // namespace stores
