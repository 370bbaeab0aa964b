// A readers-writer lock that lets a waiting writer in before later readers: the apply thread must
// not starve behind a stream of reads. std::shared_mutex is glibc's default kind, which prefers
// readers. Not recursive. Thread-safe.
#pragma once

#include <pthread.h>

#include "base/check.h"

namespace mvcc {

class RwLock {
 public:
  RwLock() {
    pthread_rwlockattr_t attributes;
    CHECK(pthread_rwlockattr_init(&attributes) == 0);
    CHECK(pthread_rwlockattr_setkind_np(&attributes,
                                        PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) == 0);
    CHECK(pthread_rwlock_init(&lock_, &attributes) == 0);
    pthread_rwlockattr_destroy(&attributes);
  }
  ~RwLock() { pthread_rwlock_destroy(&lock_); }
  RwLock(const RwLock&) = delete;
  RwLock& operator=(const RwLock&) = delete;

  // The names std::unique_lock and std::shared_lock ask for.
  void lock() { CHECK(pthread_rwlock_wrlock(&lock_) == 0); }
  void unlock() { pthread_rwlock_unlock(&lock_); }
  void lock_shared() { CHECK(pthread_rwlock_rdlock(&lock_) == 0); }
  void unlock_shared() { pthread_rwlock_unlock(&lock_); }

 private:
  pthread_rwlock_t lock_;
};

}  // namespace mvcc
