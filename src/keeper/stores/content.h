// What is put into a store: bytes of known length and digest that can be read again, from any place
// and by several threads at once, which retries and parallel uploads need. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/sha256.h"
#include "vault/stream.h"

namespace stores {

class Content {
 public:
  virtual ~Content() = default;
  virtual uint64_t bytes() const = 0;
  virtual const base::Digest& sha256() const = 0;
  // Reads up to n bytes; fewer only at the end.
  virtual absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const = 0;
  // The same for bytes that leave for the store now, as opposed to such that are only looked at:
  // the place where bandwidth is limited.
  virtual absl::StatusOr<size_t> ReadToSend(uint64_t offset, char* out, size_t n) const {
    return ReadAt(offset, out, n);
  }
};

// The first `bytes` of a file that outlives it.
class FileContent final : public Content {
 public:
  FileContent(const base::File& file, uint64_t bytes, const base::Digest& sha256)
      : file_(file), bytes_(bytes), sha256_(sha256) {}
  uint64_t bytes() const override { return bytes_; }
  const base::Digest& sha256() const override { return sha256_; }
  absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override;

 private:
  const base::File& file_;
  const uint64_t bytes_;
  const base::Digest sha256_;
};

// Bytes that outlive it.
class BytesContent final : public Content {
 public:
  explicit BytesContent(std::string_view data) : data_(data), sha256_(base::Sha256(data)) {}
  uint64_t bytes() const override { return data_.size(); }
  const base::Digest& sha256() const override { return sha256_; }
  absl::StatusOr<size_t> ReadAt(uint64_t offset, char* out, size_t n) const override;

 private:
  const std::string_view data_;
  const base::Digest sha256_;
};

// Reads a content from its start, to send it.
class ContentSource final : public vault::Source {
 public:
  explicit ContentSource(const Content& content) : content_(content) {}
  // DataLoss when the content is shorter than it says.
  absl::StatusOr<size_t> Read(char* out, size_t n) override;

 private:
  const Content& content_;
  uint64_t at_ = 0;
};

}  // namespace stores
