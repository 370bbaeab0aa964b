// A server that answers every Range with a fixed message, to measure the transport alone:
//
//   echo_benchmark [loops [seconds]] &   prints its port, then at the end the CPU time of a call
//   h2load -n 400000 -c 8 -m 64 -t 1 -d body -H 'content-type: application/grpc' -H 'te: trailers'
//       http://127.0.0.1:PORT/etcdserverpb.KV/Range
//
// With a request whose payload is empty the answer has 300 bytes, else it repeats the payload.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "net/loop.h"
#include "net/server.h"
#include "rpc/server.h"

namespace {

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t loops = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
  const unsigned seconds = argc > 2 ? static_cast<unsigned>(std::atoi(argv[2])) : 3600;
  static std::atomic<uint64_t> calls{0};
  const std::string answer(300, 'x');
  rpc::Server grpc(rpc::ServerOptions{});
  grpc.RegisterUnary("/etcdserverpb.KV/Range", [&](rpc::CallPtr call, std::string_view request) {
    calls.fetch_add(1, std::memory_order_relaxed);
    call->Respond(rpc::Message(request.empty() ? std::string_view(answer) : request));
  });
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  net::LoopPool pool(loops);
  net::Server server(pool);
  net::FunctionHandler http([](std::shared_ptr<net::HttpExchange> exchange) {
    exchange->Respond(200, "text/plain; charset=utf-8", "ok\n");
  });
  net::ListenerOptions options;
  options.address = net::ListenAddress::Tcp("127.0.0.1", 0);
  options.grpc = &grpc;
  options.http = &http;
  auto listener = server.Listen(std::move(options));
  if (!listener.ok()) {
    std::fprintf(stderr, "%s\n", listener.status().ToString().c_str());
    return 1;
  }
  std::printf("%u\n", (*listener)->port());
  std::fflush(stdout);
  ::alarm(seconds);
  int signal = 0;
  sigwait(&signals, &signal);
  server.Shutdown(std::chrono::seconds(0));
  const uint64_t n = calls.load();
  std::printf("calls %llu, server CPU %.3f us a call\n", static_cast<unsigned long long>(n),
              n == 0 ? 0.0 : CpuSeconds() * 1e6 / static_cast<double>(n));
  return 0;
}
