// Bytes on their way, in pieces: a Sink is written to, a Source is read from, and each stage holds
// a reference to the next. A stage belongs to one thread. Memory is bounded by the stage, never by
// the length of what flows.
//
// Errors are final: after one, a stage answers with it for ever.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "base/sha256.h"

namespace vault {

class Sink {
 public:
  virtual ~Sink() = default;
  virtual absl::Status Write(std::string_view data) = 0;
  // Ends the stream, here and in every stage behind. Called once; what was not finished is not
  // whole.
  virtual absl::Status Finish() = 0;
};

class Source {
 public:
  virtual ~Source() = default;
  // Reads 1 to n bytes (n > 0); 0 only at the end. What checks itself at its end reports damage
  // instead of that 0, so bytes are trustworthy only once 0 came.
  virtual absl::StatusOr<size_t> Read(char* out, size_t n) = 0;
};

// Reads until n bytes are there or the source ends.
absl::StatusOr<size_t> ReadFully(Source& from, char* out, size_t n);
// Moves everything, without finishing `to`; returns the number of bytes.
absl::StatusOr<uint64_t> Copy(Source& from, Sink& to);

// Writes into an open file, from `offset` on. Finish does not sync: the owner of the file knows
// when.
class FileSink final : public Sink {
 public:
  explicit FileSink(base::File& file, uint64_t offset = 0) : file_(file), offset_(offset) {}
  absl::Status Write(std::string_view data) override;
  absl::Status Finish() override { return absl::OkStatus(); }
  uint64_t offset() const { return offset_; }

 private:
  base::File& file_;
  uint64_t offset_;
};

// Reads `length` bytes of a file, from `offset` on. DataLoss when the file turns out shorter.
class FileSource final : public Source {
 public:
  FileSource(const base::File& file, uint64_t offset, uint64_t length)
      : file_(file), offset_(offset), left_(length) {}
  absl::StatusOr<size_t> Read(char* out, size_t n) override;

 private:
  const base::File& file_;
  uint64_t offset_;
  uint64_t left_;
};

// Appends to a string, up to a length: ResourceExhausted beyond.
class StringSink final : public Sink {
 public:
  StringSink(std::string* out, size_t bytes_max) : out_(out), bytes_max_(bytes_max) {}
  absl::Status Write(std::string_view data) override;
  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  std::string* const out_;
  const size_t bytes_max_;
};

// Reads a string that outlives it.
class StringSource final : public Source {
 public:
  explicit StringSource(std::string_view bytes) : left_(bytes) {}
  absl::StatusOr<size_t> Read(char* out, size_t n) override;

 private:
  std::string_view left_;
};

// Counts and hashes what passes through.
class HashingSink final : public Sink {
 public:
  explicit HashingSink(Sink& next) : next_(next) {}
  absl::Status Write(std::string_view data) override;
  absl::Status Finish() override;
  uint64_t bytes() const { return bytes_; }
  // Only once Finish was called.
  const base::Digest& digest() const;

 private:
  Sink& next_;
  base::Sha256Stream stream_;
  uint64_t bytes_ = 0;
  std::optional<base::Digest> digest_;
};

class HashingSource final : public Source {
 public:
  explicit HashingSource(Source& from) : from_(from) {}
  absl::StatusOr<size_t> Read(char* out, size_t n) override;
  uint64_t bytes() const { return bytes_; }
  // Only once the end was read; nothing before.
  const std::optional<base::Digest>& digest() const { return digest_; }

 private:
  Source& from_;
  base::Sha256Stream stream_;
  uint64_t bytes_ = 0;
  std::optional<base::Digest> digest_;
};

}  // namespace vault
