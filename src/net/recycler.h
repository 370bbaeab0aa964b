// Memory that goes round in circles on one thread: blocks of a few sizes for nghttp2, and strings
// for messages. Each thread has its own stock; a block freed on another thread joins that thread's
// stock. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace net {

// Like malloc, free, realloc, calloc. Blocks above 4 KiB are passed on to malloc.
void* RecyclerAllocate(size_t bytes);
void RecyclerFree(void* block);
void* RecyclerReallocate(void* block, size_t bytes);
void* RecyclerAllocateZeroed(size_t count, size_t bytes);

// An empty string that has some capacity, if one is in stock.
std::string TakeString();
// Puts a string into the stock unless it is too small or too large to be of use.
void RecycleString(std::string&& used);

}  // namespace net
