// Who asks an S3 server. Values of one thread; the functions are safe on any.
#pragma once

#include <string>
#include <string_view>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "vault/secret.h"

namespace stores {

struct S3Credentials {
  std::string access_key;  // not a secret
  vault::Secret secret_key;
  vault::Secret session_token;  // empty unless they are temporary
};

// Asked before each request, so that credentials may be rotated under a running keeper. Called by
// one thread at a time.
using S3CredentialsSource = absl::AnyInvocable<absl::StatusOr<S3Credentials>()>;

// Lines of "name = value", # begins a comment; one [section] line may stand in front, as in the
// file of the AWS tools. Names: aws_access_key_id or access_key, aws_secret_access_key or
// secret_key, aws_session_token or session_token. InvalidArgument names the line, never a value.
absl::StatusOr<S3Credentials> ParseS3Credentials(std::string_view text);

// Reads the file anew each time; vault::ReadSecret says which modes it may have.
S3CredentialsSource S3CredentialsFromFile(base::Files& files, std::string path);
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, where set, AWS_SESSION_TOKEN.
S3CredentialsSource S3CredentialsFromEnvironment();

}  // namespace stores
