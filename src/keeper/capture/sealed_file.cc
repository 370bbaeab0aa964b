#include "capture/sealed_file.h"

#include "base/sha256.h"
#include "base/status.h"

namespace capture {

absl::StatusOr<vault::Sealed> SealFile(base::Files& files, base::Random& random,
                                       const std::string& path, const vault::SealOptions& options,
                                       absl::FunctionRef<absl::Status(vault::Sink& plain)> fill) {
  ASSIGN_OR_RETURN(const auto file,
                   files.Open(path, {.write = true, .create = true, .truncate = true}));
  vault::FileSink sink(*file);
  ASSIGN_OR_RETURN(const auto sealing, vault::SealingSink::Open(options, random, sink));
  RETURN_IF_ERROR(fill(*sealing));
  RETURN_IF_ERROR(sealing->Finish());
  RETURN_IF_ERROR(file->Sync());
  return sealing->sealed();
}

void SetSealed(const vault::Sealed& sealed, catalog::Object* object) {
  object->plain_bytes = sealed.plain_bytes;
  object->stored_bytes = sealed.stored_bytes;
  object->plain_sha256 = base::DigestToHex(sealed.plain_sha256);
  object->stored_sha256 = base::DigestToHex(sealed.stored_sha256);
  object->recipients = sealed.recipients;
}

}  // namespace capture
