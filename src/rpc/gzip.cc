#include "rpc/gzip.h"

#include <zlib.h>

#include <algorithm>

#include "base/check.h"
#include "base/status.h"

namespace rpc {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window, with a gzip header
constexpr size_t kChunkBytes = 64 << 10;

struct Inflater {
  Inflater() { CHECK_OP(inflateInit2(&stream, kGzipWindow), ==, Z_OK); }
  ~Inflater() { inflateEnd(&stream); }
  z_stream stream{};
};

}  // namespace

absl::StatusOr<std::string> Gunzip(std::string_view compressed, size_t bytes_max) {
  Inflater inflater;
  z_stream& z = inflater.stream;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  z.avail_in = static_cast<uInt>(compressed.size());
  std::string plain;
  for (;;) {
    const size_t have = plain.size();
    // One byte more than allowed shows that there is more.
    const size_t room = std::min(kChunkBytes, bytes_max + 1 - have);
    plain.resize(have + room);
    z.next_out = reinterpret_cast<Bytef*>(plain.data() + have);
    z.avail_out = static_cast<uInt>(room);
    const int result = inflate(&z, Z_NO_FLUSH);
    plain.resize(have + room - z.avail_out);
    if (plain.size() > bytes_max) {
      return base::MakeStatus(absl::StatusCode::kResourceExhausted,
                              "grpc: received message after decompression larger than max {}",
                              bytes_max);
    }
    if (result == Z_STREAM_END) {
      if (z.avail_in == 0) return plain;
      if (inflateReset(&z) != Z_OK) break;  // gzip members may follow each other
      continue;
    }
    if (result != Z_OK) break;
  }
  return absl::InternalError("grpc: failed to decompress the received message: gzip: invalid data");
}

std::string Gzip(std::string_view plain) {
  z_stream z{};
  CHECK_OP(deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY),
           ==, Z_OK);
  std::string out(deflateBound(&z, plain.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  z.avail_in = static_cast<uInt>(plain.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  CHECK_OP(deflate(&z, Z_FINISH), ==, Z_STREAM_END);
  out.resize(out.size() - z.avail_out);
  deflateEnd(&z);
  return out;
}

}  // namespace rpc
