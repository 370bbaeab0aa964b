// An HTTP server on a free loopback port that answers what a test tells it, byte for byte. One
// thread of its own, which serves one connection after another and calls the test's function; the
// rest belongs to the test's thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace stores {

struct HttpRequest {
  std::string method;
  std::string target;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string Header(const std::string& name) const {
    const auto header = headers.find(name);
    return header == headers.end() ? "" : header->second;
  }
};

class ScriptedServer {
 public:
  // `answer` returns all that is sent before the connection is closed; "" closes it without a word.
  using Script = std::function<std::string(const HttpRequest&)>;
  explicit ScriptedServer(Script answer);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  std::string url() const;
  // What came so far.
  std::vector<HttpRequest> requests() const;

  // A whole answer.
  static std::string Answer(int status, const std::string& body,
                            const std::vector<std::string>& headers = {});

 private:
  void Serve();
  void ServeOne(int connection);

  const Script script_;
  int listener_ = -1;
  int stop_ = -1;  // readable when the thread shall end
  int port_ = 0;
  mutable std::mutex mutex_;  // leaf; guards what follows
  std::vector<HttpRequest> requests_;
  std::thread thread_;  // last: uses all the above
};

}  // namespace stores
