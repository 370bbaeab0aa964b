#include "api/context.h"

#include <utility>

#include "base/wire.h"

namespace api {

HelperPool::HelperPool(int threads, size_t queue_max) : queue_max_(queue_max) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Main(); });
}

HelperPool::~HelperPool() { Stop(); }

bool HelperPool::Post(absl::AnyInvocable<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= queue_max_) return false;
    queue_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void HelperPool::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void HelperPool::Main() {
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

Answers::Answers(net::LoopPool& loops) : loops_(loops) {
  for (size_t i = 0; i < loops.size(); ++i) buckets_.push_back(std::make_unique<Bucket>());
}

void Answers::Deliver(net::Loop& loop, net::Task task) {
  if (!member::ApplyLoop::InBatch()) {
    loop.Post(std::move(task));
    return;
  }
  Bucket& bucket = *buckets_[loop.index()];
  const std::lock_guard lock(bucket.mutex);
  bucket.tasks.push_back(std::move(task));
}

void Answers::Flush() {
  for (size_t i = 0; i < buckets_.size(); ++i) FlushBucket(*buckets_[i], loops_.at(i));
}

void Answers::FlushBucket(Bucket& bucket, net::Loop& loop) {
  std::vector<net::Task> tasks;
  {
    const std::lock_guard lock(bucket.mutex);
    tasks.swap(bucket.tasks);
  }
  if (tasks.empty()) return;
  loop.Post([tasks = std::move(tasks)]() mutable {
    for (net::Task& task : tasks) task();
  });
}

void Context::AppendHeader(std::string* out, int64_t revision) const {
  // At most four varint fields of a tag and ten bytes.
  char header[48];
  char* p = header;
  const auto put = [&p](char tag, uint64_t v) {
    if (v == 0) return;
    *p++ = tag;
    p = base::wire::PutVarint(p, v);
  };
  put(0x08, member.cluster_id());
  put(0x10, member.id());
  put(0x18, static_cast<uint64_t>(revision));
  put(0x20, member.term());
  out->push_back(0x0a);
  out->push_back(static_cast<char>(p - header));
  out->append(header, static_cast<size_t>(p - header));
}

rpc::Message Context::WithHeader(int64_t revision) const {
  rpc::Message message;
  AppendHeader(message.bytes(), revision);
  return message;
}

absl::Status UnmarshalError() {
  return absl::InternalError(
      "grpc: error unmarshalling request: proto: cannot parse invalid wire-format data");
}

void RegisterUnary(rpc::Server& server, const Context& context, std::string_view path,
                   UnaryHandler handler) {
  server.RegisterUnary(path, [&context, handler](rpc::CallPtr call, std::string_view request) {
    handler(context, std::move(call), request);
  });
}

}  // namespace api
