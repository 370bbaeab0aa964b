#include "discovery.h"

#include <arpa/nameser.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>

#include <array>

#include "base/status.h"

namespace engramctl {
namespace {

constexpr size_t kAnswerBytesMax = 65536;

// Appends "scheme://target:port" for each record of `question`.
void Append(const std::string& question, std::string_view scheme,
            std::vector<std::string>* endpoints) {
  std::vector<unsigned char> answer(kAnswerBytesMax);
  const int length = res_query(question.c_str(), ns_c_in, ns_t_srv, answer.data(),
                               static_cast<int>(answer.size()));
  if (length < 0) return;
  ns_msg message;
  if (ns_initparse(answer.data(), length, &message) != 0) return;
  for (int i = 0; i < ns_msg_count(message, ns_s_an); ++i) {
    ns_rr record;
    // An SRV record: priority, weight, port (two bytes each), target name.
    if (ns_parserr(&message, ns_s_an, i, &record) != 0 || ns_rr_type(record) != ns_t_srv ||
        ns_rr_rdlen(record) < 7) {
      continue;
    }
    const unsigned char* data = ns_rr_rdata(record);
    std::array<char, NS_MAXDNAME> target{};
    if (ns_name_uncompress(ns_msg_base(message), ns_msg_end(message), data + 6, target.data(),
                           target.size()) < 0) {
      continue;
    }
    std::string host(target.data());
    if (!host.empty() && host.back() == '.') host.pop_back();
    endpoints->push_back(fmt::format("{}://{}:{}", scheme, host, data[4] * 256 + data[5]));
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> DiscoverEndpoints(std::string_view domain,
                                                           std::string_view name,
                                                           bool accept_insecure) {
  const std::string suffix = name.empty() ? "" : fmt::format("-{}", name);
  std::vector<std::string> endpoints;
  Append(fmt::format("_etcd-client-ssl{}._tcp.{}", suffix, domain), "https", &endpoints);
  if (accept_insecure) {
    Append(fmt::format("_etcd-client{}._tcp.{}", suffix, domain), "http", &endpoints);
  }
  if (endpoints.empty()) {
    return base::MakeStatus(absl::StatusCode::kNotFound,
                            "lookup _etcd-client{}._tcp.{}: no such host", suffix, domain);
  }
  return endpoints;
}

}  // namespace engramctl
