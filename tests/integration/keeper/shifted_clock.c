// Preloaded into a program under test: its wall clock is the real one shifted by what a file says,
// which a test changes while the program runs. ENGRAM_CLOCK_FILE names that file: nanoseconds, a
// native int64. The steady clocks stay as they are, as they do when a machine's clock is set.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const _Atomic int64_t* shift_ns;
static const int64_t kSecond = 1000000000;

__attribute__((constructor)) static void Begin(void) {
  const char* path = getenv("ENGRAM_CLOCK_FILE");
  const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  void* at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) {
    perror("shifted_clock: ENGRAM_CLOCK_FILE");
    abort();
  }
  close(fd);
  shift_ns = at;
}

// Calls before the constructor see the real clock.
static int64_t Shift(void) { return shift_ns == NULL ? 0 : *shift_ns; }

static struct timespec Add(struct timespec time, int64_t ns) {
  const int64_t sum = time.tv_sec * kSecond + time.tv_nsec + ns;
  time.tv_sec = sum / kSecond;
  time.tv_nsec = sum % kSecond;
  return time;
}

int clock_gettime(clockid_t id, struct timespec* time) {
  const long got = syscall(SYS_clock_gettime, id, time);
  if (got == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) *time = Add(*time, Shift());
  return (int)got;
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  (void)zone;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != NULL) *out = now.tv_sec;
  return now.tv_sec;
}

// Waits until a moment of the wall clock are made by this call; the kernel knows the real one.
long syscall(long number, ...) {
  static long (*real)(long, ...);
  if (real == NULL) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  struct timespec until;
  if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && a[3] != 0) {
    until = Add(*(const struct timespec*)a[3], -Shift());
    a[3] = (long)&until;
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
