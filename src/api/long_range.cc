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

  // As api::OnHelper; keeps this alive until `then` has run.
  template <typename Work, typename Then>
  void OnHelper(Work work, Then then) {
    api::OnHelper(context_, call_, std::move(work),
                  [self = shared_from_this(), then = std::move(then)](
                      const rpc::CallPtr&, auto result) mutable { then(std::move(result)); });
  }

  struct Sorted {
    std::string kvs;
    mvcc::RangeResult result;
  };
  // Of a range that no cursor can walk.
  absl::StatusOr<Sorted> ReadSorted() {
    Sorted sorted;
    ASSIGN_OR_RETURN(sorted.result, context_.member.store().Range(range_.query, &sorted.kvs));
    return sorted;
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
    stalled_ = call_->loop().RunAfter(context_.options.range_stall_max, [weak = weak_from_this()] {
      // Gone with its call, whose end nobody else tells it.
      const auto self = weak.lock();
      if (self == nullptr) return;
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
    if (!InKeyOrder(range_.query)) {
      return OnHelper([this] { return ReadSorted(); },
                      [this](absl::StatusOr<Sorted> sorted) {
                        if (!sorted.ok()) return call_->Finish(sorted.status());
                        Respond(sorted->result,
                                std::make_shared<const std::string>(std::move(sorted->kvs)));
                      });
    }
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
    if (!InKeyOrder(range_.query)) {
      return OnHelper([this] { return ReadSorted(); },
                      [this](absl::StatusOr<Sorted> sorted) {
                        if (!sorted.ok()) return call_->Finish(sorted.status());
                        SendLast(std::move(sorted->kvs), sorted->result);
                      });
    }
    auto cursor = mvcc::RangeCursor::Open(context_.member.store(), range_.query);
    if (!cursor.ok()) return call_->Finish(cursor.status());
    cursor_ = *std::move(cursor);
    Next();
  }

 private:
  void Take(std::string* kvs, const Chunk& chunk) override {
    if (chunk.done) {
      return SendLast(std::move(*kvs),
                      {.revision = cursor_->revision(), .count = chunk.count, .more = chunk.more});
    }
    Send("", std::move(*kvs), "");
    Next();
  }

  // The last message says of the whole what a plain range would.
  void SendLast(std::string kvs, const mvcc::RangeResult& result) {
    std::string header;
    context_.AppendHeader(&header, result.revision);
    std::string tail;
    member::AppendRangeTail(result, &tail);
    Send(header, std::move(kvs), tail);
    call_->Finish(absl::StatusCode::kOk, "");
  }

  // A RangeStreamResponse with a RangeResponse in it.
  void Send(std::string_view header, std::string kvs, std::string_view tail) {
    rpc::Message message;
    base::wire::AppendTag(message.bytes(), 1, base::wire::Type::kBytes);
    base::wire::AppendVarint(message.bytes(), header.size() + kvs.size() + tail.size());
    message.bytes()->append(header);
    message.AddShared(std::make_shared<const std::string>(std::move(kvs)));
    message.bytes()->append(tail);
    call_->Send(std::move(message));
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
