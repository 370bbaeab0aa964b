// Whatever another member sends: the decoders of both streams, of a snapshot's head and of an HTTP
// response neither crash nor read out of bounds, come to the same result however the bytes are cut,
// and what was understood survives being sent on. The first byte chooses the decoder, the second
// the length of the pieces.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "net/http1_response.h"
#include "peer/snapshot_frame.h"
#include "peer/stream_codec.h"

namespace {

// What came of feeding all bytes.
template <typename T>
struct Result {
  bool ok = true;
  std::vector<T> values;
  friend bool operator==(const Result&, const Result&) = default;
};

// Calls `feed` with one piece after the other until it says that there is nothing more to feed.
template <typename F>
void InPieces(std::string_view bytes, size_t piece, F feed) {
  while (!bytes.empty()) {
    const std::string_view next = bytes.substr(0, piece);
    bytes.remove_prefix(next.size());
    if (!feed(next)) return;
  }
}

Result<raft::Message> FeedStream(peer::StreamKind kind, std::string_view bytes, size_t piece) {
  peer::StreamDecoder decoder(kind, /*local=*/1, /*remote=*/2);
  Result<raft::Message> result;
  InPieces(bytes, piece, [&](std::string_view next) {
    result.ok =
        decoder.Feed(next, [&](raft::Message m) { result.values.push_back(std::move(m)); }).ok();
    return result.ok;
  });
  return result;
}

void Stream(peer::StreamKind kind, std::string_view bytes, size_t piece) {
  const Result<raft::Message> whole = FeedStream(kind, bytes, std::max<size_t>(bytes.size(), 1));
  CHECK(whole == FeedStream(kind, bytes, piece));
  peer::StreamEncoder encoder(kind);
  std::string again;
  for (const raft::Message& message : whole.values) {
    encoder.LinkHeartbeat(&again);
    encoder.Encode(message, &again);
  }
  const Result<raft::Message> reread = FeedStream(kind, again, piece);
  // Who sent an append is not on the wire when its head is left out.
  CHECK(reread.ok && reread.values.size() == whole.values.size());
  for (size_t i = 0; i < whole.values.size(); ++i) {
    CHECK(reread.values[i].entries == whole.values[i].entries);
    CHECK(reread.values[i].index == whole.values[i].index);
    CHECK(reread.values[i].commit == whole.values[i].commit);
  }
}

std::pair<bool, std::string> FeedSnapshot(std::string_view bytes, size_t piece) {
  peer::SnapshotHeadReader reader;
  std::string database;
  bool ok = true;
  InPieces(bytes, piece, [&](std::string_view next) {
    ok = reader.Feed(next, [&](std::string_view more) { database += more; }).ok();
    return ok;
  });
  if (ok && reader.done()) {
    peer::SnapshotHeadReader again;
    CHECK(again.Feed(peer::EncodeSnapshotHead(reader.message()), [](std::string_view) {}).ok());
    CHECK(again.done());
    CHECK(again.message() == reader.message());
  }
  return {ok && reader.done(), database};
}

std::pair<int, std::string> FeedResponse(std::string_view bytes, size_t piece) {
  net::Http1Response response;
  std::string body;
  bool ok = true;
  InPieces(bytes, piece, [&](std::string_view next) {
    const auto taken = response.Feed(next, [&](std::string_view more) { body += more; });
    ok = taken.ok();
    CHECK(!ok || *taken <= next.size());
    return ok && !response.done();
  });
  const bool ended = ok && response.OnEof().ok();
  return {ended ? response.head().status : ok ? -1 : -2, body};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t piece = data[1] % 32 + 1;
  const size_t all = std::max<size_t>(bytes.size(), 1);
  switch (data[0] % 4) {
    case 0:
      Stream(peer::StreamKind::kMessage, bytes, piece);
      break;
    case 1:
      Stream(peer::StreamKind::kMsgApp, bytes, piece);
      break;
    case 2:
      CHECK(FeedSnapshot(bytes, piece) == FeedSnapshot(bytes, all));
      break;
    default:
      CHECK(FeedResponse(bytes, piece) == FeedResponse(bytes, all));
      break;
  }
  return 0;
}
