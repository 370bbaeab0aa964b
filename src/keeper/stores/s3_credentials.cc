#include "stores/s3_credentials.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/status.h"

namespace stores {
namespace {

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

absl::Status CheckWhole(const S3Credentials& credentials, std::string_view where) {
  if (!credentials.access_key.empty() && !credentials.secret_key.empty()) return absl::OkStatus();
  return base::MakeStatus(absl::StatusCode::kInvalidArgument, "{}: no {}", where,
                          credentials.access_key.empty() ? "access key (aws_access_key_id)"
                                                         : "secret key (aws_secret_access_key)");
}

}  // namespace

absl::StatusOr<S3Credentials> ParseS3Credentials(std::string_view text) {
  S3Credentials credentials;
  bool begun = false;
  for (size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = Trimmed(line);
    if (line.empty() || line.starts_with('#')) continue;
    const auto malformed = [&](std::string_view what) {
      return base::MakeStatus(absl::StatusCode::kInvalidArgument, "S3 credentials, line {}: {}",
                              number, what);
    };
    if (line.starts_with('[')) {
      if (begun) return malformed("more than one section; leave the one to be used");
      begun = true;
      continue;
    }
    begun = true;
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) return malformed("expected name = value");
    const std::string_view name = Trimmed(line.substr(0, equals));
    const std::string_view value = Trimmed(line.substr(equals + 1));
    const bool printable =
        std::all_of(value.begin(), value.end(), [](char c) { return c > ' ' && c <= '~'; });
    if (value.empty() || !printable) return malformed("the value is empty or has odd characters");
    if (name == "aws_access_key_id" || name == "access_key") {
      credentials.access_key = value;
    } else if (name == "aws_secret_access_key" || name == "secret_key") {
      credentials.secret_key = vault::Secret(std::string(value));
    } else if (name == "aws_session_token" || name == "session_token") {
      credentials.session_token = vault::Secret(std::string(value));
    } else {
      return malformed("an unknown name");
    }
  }
  RETURN_IF_ERROR(CheckWhole(credentials, "S3 credentials"));
  return credentials;
}

S3CredentialsSource S3CredentialsFromFile(base::Files& files, std::string path) {
  return [&files, path = std::move(path)]() -> absl::StatusOr<S3Credentials> {
    ASSIGN_OR_RETURN(const vault::Secret text, vault::ReadSecret(files, {.file = path}));
    absl::StatusOr<S3Credentials> credentials = ParseS3Credentials(text.view());
    if (!credentials.ok()) return base::Annotate(credentials.status(), path);
    return credentials;
  };
}

S3CredentialsSource S3CredentialsFromEnvironment() {
  return []() -> absl::StatusOr<S3Credentials> {
    const auto value = [](const char* name) {
      const char* text = std::getenv(name);
      return std::string(text == nullptr ? "" : text);
    };
    S3Credentials credentials;
    credentials.access_key = value("AWS_ACCESS_KEY_ID");
    credentials.secret_key = vault::Secret(value("AWS_SECRET_ACCESS_KEY"));
    credentials.session_token = vault::Secret(value("AWS_SESSION_TOKEN"));
    RETURN_IF_ERROR(CheckWhole(credentials, "S3 credentials of the environment"));
    return credentials;
  };
}

}  // namespace stores
