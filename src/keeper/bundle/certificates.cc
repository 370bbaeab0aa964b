#include "bundle/certificates.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <array>
#include <optional>
#include <utility>

#include "bundle/contents.h"

namespace bundle {
namespace {

using Level = Finding::Level;

// One place where certificates or keys were found.
struct Material {
  std::string subject;  // how findings call it
  std::string path;     // of the file, where its key lies beside it; empty for embedded ones
  Pem pem;
};

struct FreeTime {
  void operator()(ASN1_TIME* time) const { ASN1_TIME_free(time); }
};

bool IsAuthority(X509* certificate) { return X509_check_ca(certificate) > 0; }

bool SameKey(X509* certificate, EVP_PKEY* key) {
  const EVP_PKEY* own = X509_get0_pubkey(certificate);
  return own != nullptr && EVP_PKEY_eq(own, key) == 1;
}

// Embedded PEM of a kubeconfig: base64 in `key` of `map`.
std::string Embedded(const yaml::Value* map, std::string_view key) {
  if (map == nullptr) return "";
  const std::string_view text = map->TextOf(key);
  return text.empty() ? "" : FromBase64(text).value_or("not base64");
}

void AddEmbedded(const std::string& path, std::string_view what, const std::string& text,
                 std::vector<Material>* all) {
  if (text.empty()) return;
  all->push_back({.subject = fmt::format("{} ({})", path, what), .pem = ParsePem(text)});
  Pem& pem = all->back().pem;
  if (pem.certificates.empty() && pem.faults.empty()) {
    pem.faults.emplace_back("it holds no certificate");
  }
}

// What kubeconfigs (admin.conf, scheduler.conf...) carry within.
void AddKubeconfig(const Document& document, std::vector<Material>* all) {
  const yaml::Value* users = document.value.Find("users");
  for (size_t i = 0; users != nullptr && i < users->items.size(); ++i) {
    const yaml::Value& user = users->items[i];
    const yaml::Value* inner = user.Find("user");
    const std::string certificate = Embedded(inner, "client-certificate-data");
    // Certificate and key in one text: they are compared like those of one file.
    if (!certificate.empty()) {
      AddEmbedded(document.path, fmt::format("user {}", user.TextOf("name")),
                  certificate + "\n" + Embedded(inner, "client-key-data"), all);
    }
  }
  const yaml::Value* clusters = document.value.Find("clusters");
  for (size_t i = 0; clusters != nullptr && i < clusters->items.size(); ++i) {
    const yaml::Value& cluster = clusters->items[i];
    AddEmbedded(document.path, fmt::format("CA of cluster {}", cluster.TextOf("name")),
                Embedded(cluster.Find("cluster"), "certificate-authority-data"), all);
  }
}

std::vector<Material> Gather(const Contents& contents) {
  std::vector<Material> all;
  for (const auto& [path, file] : contents.files()) {
    if (file.content.find("-----BEGIN ") != std::string::npos) {
      all.push_back({.subject = path, .path = path, .pem = ParsePem(file.content)});
    } else if (path.ends_with(".crt") || path.ends_with(".pem")) {
      if (file.entry.type != Entry::Type::kFile) continue;
      all.push_back({.subject = path, .path = path});
      all.back().pem.faults.emplace_back("it holds no certificate");
    }
  }
  for (const Document& document : contents.documents()) {
    if (document.value.TextOf("kind") == "Config") AddKubeconfig(document, &all);
  }
  return all;
}

bool IsLater(const ASN1_TIME* time, const ASN1_TIME* than) {
  int days = 0;
  int seconds = 0;
  return ASN1_TIME_diff(&days, &seconds, than, time) == 1 && (days > 0 || seconds > 0);
}

void CheckTimes(const std::string& subject, X509* certificate, const CheckOptions& options,
                Report* report) {
  const auto now_s = std::chrono::floor<std::chrono::seconds>(options.now).count();
  const std::unique_ptr<ASN1_TIME, FreeTime> now(ASN1_TIME_set(nullptr, now_s));
  int days = 0;
  int seconds = 0;
  if (now == nullptr ||
      ASN1_TIME_diff(&days, &seconds, now.get(), X509_get0_notAfter(certificate)) != 1) {
    Add(report, Level::kFailed, subject, "its dates do not parse");
    return;
  }
  const std::string name = NameText(X509_get_subject_name(certificate));
  // Whole days, rounded down also where it has expired.
  const int64_t left = days < 0 || seconds < 0 ? int64_t{days} - (seconds < 0 ? 1 : 0) : days;
  if (!report->first_expiry_days || left < *report->first_expiry_days) {
    report->first_expiry_days = left;
    report->first_expiring = subject;
  }
  if (left < 0) {
    Add(report, Level::kFailed, subject,
        fmt::format("{} expired {} ago: renew it, then take the bundle anew", name,
                    days == 0 ? "less than a day" : fmt::format("{} d", -int64_t{days})));
  } else if (IsLater(X509_get0_notBefore(certificate), now.get())) {
    Add(report, Level::kFailed, subject,
        fmt::format("{} is not valid yet: it, or this host's clock, is wrong", name));
  } else if (left < options.expiry_warning_days) {
    Add(report, Level::kWarning, subject, fmt::format("{} expires in {} d: renew it", name, left));
  } else {
    Add(report, Level::kOk, subject, fmt::format("{} is valid, expires in {} d", name, left));
  }
}

// The issuer among the authorities of the bundle.
void CheckIssuer(const std::string& subject, X509* certificate,
                 const std::vector<Material>& materials, Report* report) {
  const X509_NAME* issuer = X509_get_issuer_name(certificate);
  bool same_name = false;
  for (const Material& material : materials) {
    for (const Certificate& other : material.pem.certificates) {
      if (X509_NAME_cmp(issuer, X509_get_subject_name(other.get())) != 0) continue;
      if (!IsAuthority(other.get()) && other.get() != certificate) continue;
      same_name = true;
      if (X509_verify(certificate, X509_get0_pubkey(other.get())) == 1) return;
      ERR_clear_error();
    }
  }
  const std::string name = NameText(issuer);
  if (same_name) {
    Add(report, Level::kFailed, subject,
        fmt::format("is not signed by the bundle's CA {}: one of the two was renewed without the "
                    "other",
                    name));
  } else {
    Add(report, Level::kWarning, subject,
        fmt::format("its CA {} is not in the bundle: list its file as well", name));
  }
}

// The file that should hold the key of a certificate file, by the usual names.
const Material* KeyBeside(const std::string& path, const std::vector<Material>& materials) {
  const std::string stem = path.substr(0, path.rfind('.'));
  for (const std::string& candidate : {stem + ".key", stem + "-key.pem"}) {
    for (const Material& material : materials) {
      if (material.path == candidate) return &material;
    }
  }
  return nullptr;
}

void CheckKey(const Material& material, const std::vector<Material>& materials, Report* report) {
  X509* own = material.pem.certificates.front().get();
  const Material* holder = &material;
  if (!material.pem.has_private_key) {
    // A CA's key is often kept elsewhere on purpose, and an embedded CA never has one.
    if (material.path.empty()) return;
    holder = KeyBeside(material.path, materials);
    if (holder == nullptr) {
      if (!IsAuthority(own)) {
        Add(report, Level::kWarning, material.subject, "its private key is not in the bundle");
      }
      return;
    }
  }
  if (holder->pem.private_key == nullptr) return;  // said where the key was parsed
  if (SameKey(own, holder->pem.private_key.get())) return;
  Add(report, Level::kFailed, material.subject,
      holder == &material
          ? std::string("its certificate and its private key do not belong together")
          : fmt::format("does not belong to the private key {}", holder->path));
}

// "sa.pub" beside "sa.key": service accounts are signed by one and checked by the other.
void CheckPublicKey(const Material& material, const std::vector<Material>& materials,
                    Report* report) {
  if (material.pem.public_key == nullptr || material.path.empty()) return;
  const Material* holder = KeyBeside(material.path, materials);
  if (holder == nullptr || holder->pem.private_key == nullptr) return;
  if (EVP_PKEY_eq(material.pem.public_key.get(), holder->pem.private_key.get()) == 1) {
    Add(report, Level::kOk, material.subject, fmt::format("belongs to {}", holder->path));
  } else {
    Add(report, Level::kFailed, material.subject,
        fmt::format("does not belong to the private key {}", holder->path));
  }
  ERR_clear_error();
}

}  // namespace

void CheckCertificates(const Contents& contents, const CheckOptions& options, Report* report) {
  const std::vector<Material> materials = Gather(contents);
  for (const Material& material : materials) {
    for (const std::string& fault : material.pem.faults) {
      const bool unknown = fault.find("cannot be said") != std::string::npos;
      Add(report, unknown ? Level::kWarning : Level::kFailed, material.subject, fault);
    }
    CheckPublicKey(material, materials, report);
    for (size_t i = 0; i < material.pem.certificates.size(); ++i) {
      X509* certificate = material.pem.certificates[i].get();
      const std::string subject =
          i == 0 ? material.subject : fmt::format("{} #{}", material.subject, i + 1);
      ++report->certificates;
      CheckTimes(subject, certificate, options, report);
      if (!IsAuthority(certificate)) CheckIssuer(subject, certificate, materials, report);
    }
    if (!material.pem.certificates.empty()) CheckKey(material, materials, report);
  }
}

}  // namespace bundle
