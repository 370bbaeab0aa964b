#include "api/long_range.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "base/wire.h"
#include "member/errors.h"
#include "member/txn.h"
#include "mvcc/store.h"

namespace api {
namespace {

// An answer up to this size is built whole.
constexpr uint64_t kWholeBytes = 1 << 20;
constexpr uint64_t kPieceBytes = 512 << 10;
// A piece is read while no more than this waits to be sent.
constexpr size_t kQueuedBytes = 256 << 10;
constexpr size_t kFirstKeys = 10;
constexpr size_t kKeysMax = 10000;

bool InKeyOrder(const mvcc::RangeQuery& query) {
  return query.sort_target == mvcc::SortTarget::kKey &&
         query.sort_order != mvcc::SortOrder::kDescend && query.min_mod_revision == 0 &&
         query.max_mod_revision == 0 && query.min_create_revision == 0 &&
         query.max_create_revision == 0;
}

// One call; kept alive by whatever it waits for. What it holds between steps: the cursor with its
// pinned view, and a few bytes a key once the size had to be found out.
class LongRange : public std::enable_shared_from_this<LongRange> {
 public:
  LongRange(const Context& context, rpc::CallPtr call, std::string request)
      : context_(context), call_(std::move(call)), request_(std::move(request)) {}
  virtual ~LongRange() = default;
  LongRange(const LongRange&) = delete;
  LongRange& operator=(const LongRange&) = delete;

 protected:
  using Chunk = mvcc::RangeCursor::Chunk;

  // On the loop: what a step read. `kvs` may be moved from.
  virtual void Take(std::string* kvs, const Chunk& chunk) = 0;

  // Runs `work` on a helper and `then`, with what it returned, on the loop.
  template <typename Work, typename Then>
  void OnHelper(Work work, Then then) {
    const bool posted = context_.helpers.Post(
        [self = shared_from_this(), work = std::move(work), then = std::move(then)]() mutable {
          auto result = work();
          net::Loop& loop = self->call_->loop();
          loop.Post([self = std::move(self), then = std::move(then),
                     result = std::move(result)]() mutable {
            if (!self->call_->done()) then(std::move(result));
          });
        });
    if (!posted) call_->Finish(member::TooManyRequestsError());
  }

  // Reads the next piece as soon as there is room for it.
  void Next() {
    if (call_->done()) return;
    if (call_->queued_bytes() > kQueuedBytes) return WaitForRoom();
    struct Piece {
      std::string kvs;
      absl::StatusOr<Chunk> chunk = absl::UnknownError("not read");
    };
    OnHelper(
        [this] {
          Piece piece;
          if (keys_ == kKeysMax) piece.kvs.reserve(kPieceBytes + kPieceBytes / 8);
          piece.chunk = cursor_->Next(keys_, kPieceBytes, &piece.kvs);
          return piece;
        },
        [this](Piece piece) {
          if (!piece.chunk.ok()) return call_->Finish(piece.chunk.status());
          keys_ = std::min(keys_ * 2, kKeysMax);
          Take(&piece.kvs, *piece.chunk);
        });
  }

  const Context& context_;
  const rpc::CallPtr call_;
  const std::string request_;
  member::RangeView range_;  // views into request_
  std::unique_ptr<mvcc::RangeCursor> cursor_;
  size_t keys_ = kFirstKeys;

 private:
  // A client that takes nothing for long would keep the pages it may still read from being reused.
  void WaitForRoom() {
    stalled_ =
        call_->loop().RunAfter(context_.options.range_stall_max, [self = shared_from_this()] {
          self->stalled_ = {};
          self->call_->Finish(absl::StatusCode::kResourceExhausted,
                              "etcdserver: the client does not take the answer of its range");
        });
    call_->NotifyWhenWritable(kQueuedBytes, [self = shared_from_this()] {
      self->call_->loop().Cancel(&self->stalled_);
      self->Next();
    });
  }

  net::TimerId stalled_;
};

class InOneMessage final : public LongRange {
 public:
  using LongRange::LongRange;

  void Start() {
    if (!member::DecodeRange(request_, &range_)) return call_->Finish(UnmarshalError());
    if (!InKeyOrder(range_.query)) return AnswerSorted();
    OnHelper([this] { return Plan(); },
             [this](absl::StatusOr<Planned> planned) {
               if (!planned.ok()) return call_->Finish(planned.status());
               if (planned->whole != nullptr) return Respond(planned->result, planned->whole);
               SendInParts(std::move(*planned));
             });
  }

 private:
  struct Planned {
    std::unique_ptr<mvcc::RangeCursor> cursor;
    mvcc::RangeResult result;
    uint64_t kvs_bytes = 0;
    std::shared_ptr<const std::string> whole;  // null when it is to go in parts
  };
  // Gives back what it took of the budget when its last byte has left.
  struct Held {
    std::shared_ptr<ByteBudget> budget;
    std::string kvs;
    ~Held() { budget->Give(kvs.capacity()); }
  };

  absl::StatusOr<Planned> Plan() {
    Planned planned;
    ASSIGN_OR_RETURN(planned.cursor,
                     mvcc::RangeCursor::Open(context_.member.store(), range_.query));
    ASSIGN_OR_RETURN(const mvcc::RangeCursor::Size size, planned.cursor->Plan());
    planned.kvs_bytes = size.bytes;
    planned.result.revision = planned.cursor->revision();
    planned.result.count = size.count;
    planned.result.more = size.more;
    if (size.bytes > kWholeBytes) return planned;
    std::string kvs;
    kvs.reserve(size.bytes);
    if (!context_.answer_bytes->TryTake(kvs.capacity())) return planned;
    const auto held = std::make_shared<Held>(Held{context_.answer_bytes, std::move(kvs)});
    RETURN_IF_ERROR(planned.cursor->Next(SIZE_MAX, kWholeBytes + 1, &held->kvs).status());
    planned.whole = std::shared_ptr<const std::string>(held, &held->kvs);
    return planned;
  }

  void AnswerSorted() {
    struct Sorted {
      std::shared_ptr<std::string> kvs;
      mvcc::RangeResult result;
    };
    OnHelper(
        [this]() -> absl::StatusOr<Sorted> {
          Sorted sorted;
          sorted.kvs = std::make_shared<std::string>();
          ASSIGN_OR_RETURN(sorted.result,
                           context_.member.store().Range(range_.query, sorted.kvs.get()));
          return sorted;
        },
        [this](absl::StatusOr<Sorted> sorted) {
          if (!sorted.ok()) return call_->Finish(sorted.status());
          Respond(sorted->result, std::move(sorted->kvs));
        });
  }

  void Respond(const mvcc::RangeResult& result, std::shared_ptr<const std::string> kvs) {
    rpc::Message message = context_.WithHeader(result.revision);
    message.AddShared(std::move(kvs));
    member::AppendRangeTail(result, message.bytes());
    call_->Respond(std::move(message));
  }

  void SendInParts(Planned planned) {
    cursor_ = std::move(planned.cursor);
    keys_ = kKeysMax;
    std::string header;
    context_.AppendHeader(&header, planned.result.revision);
    member::AppendRangeTail(planned.result, &tail_);
    call_->StartMessage(header.size() + planned.kvs_bytes + tail_.size());
    call_->SendPart(std::move(header));
    Next();
  }

  void Take(std::string* kvs, const Chunk& chunk) override {
    call_->SendPart(std::move(*kvs));
    if (!chunk.done) return Next();
    call_->SendPart(std::move(tail_));
    call_->Finish(absl::StatusCode::kOk, "");
  }

  std::string tail_;
};

class InMessages final : public LongRange {
 public:
  using LongRange::LongRange;

  void Start() {
    if (!member::DecodeRange(request_, &range_)) return call_->Finish(UnmarshalError());
    auto cursor = mvcc::RangeCursor::Open(context_.member.store(), range_.query);
    if (!cursor.ok()) return call_->Finish(cursor.status());
    cursor_ = *std::move(cursor);
    Next();
  }

 private:
  void Take(std::string* kvs, const Chunk& chunk) override {
    std::string response;
    if (chunk.done) context_.AppendHeader(&response, cursor_->revision());
    response += *kvs;
    if (chunk.done) member::AppendRangeTail({.count = chunk.count, .more = chunk.more}, &response);
    rpc::Message message;
    base::wire::AppendBytes(message.bytes(), 1, response);
    call_->Send(std::move(message));
    if (chunk.done) return call_->Finish(absl::StatusCode::kOk, "");
    Next();
  }
};

}  // namespace

void AnswerLongRange(const Context& context, rpc::CallPtr call, std::string request) {
  std::make_shared<InOneMessage>(context, std::move(call), std::move(request))->Start();
}

void StreamRange(const Context& context, rpc::CallPtr call, std::string request) {
  std::make_shared<InMessages>(context, std::move(call), std::move(request))->Start();
}

}  // namespace api
