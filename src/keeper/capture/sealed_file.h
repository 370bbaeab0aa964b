// The one way an object's bytes come into the spool: packed and sealed into a file. Functions are
// blocking and safe on any thread.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/random.h"
#include "catalog/inventory.h"
#include "vault/seal.h"

namespace capture {

// Seals what `fill` writes into a file at `path`, made anew, whose bytes are durable on return; its
// name is so once the folder is synced. Errors: those of `fill`, the vault's and the disk's.
absl::StatusOr<vault::Sealed> SealFile(base::Files& files, base::Random& random,
                                       const std::string& path, const vault::SealOptions& options,
                                       absl::FunctionRef<absl::Status(vault::Sink& plain)> fill);

// Takes what is known of the sealed bytes into the facts of their object.
void SetSealed(const vault::Sealed& sealed, catalog::Object* object);

}  // namespace capture
