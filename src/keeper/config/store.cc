#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "config/sections.h"

namespace config {
namespace {

bool AllOf(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           others.find(c) != std::string_view::npos;
  });
}

bool IsPort(std::string_view text) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0 && port < 65536;
}

// Why `endpoint` is no "http[s]://HOST[:PORT]"; empty: it is.
std::string EndpointFault(std::string_view endpoint) {
  std::string_view rest = endpoint;
  if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
  } else if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else {
    return "expected https://HOST or https://HOST:PORT";
  }
  // Not repeated: it may hold a password.
  if (rest.find('@') != std::string_view::npos)
    return "holds a user; credentials have keys of their own";
  if (rest.find('/') != std::string_view::npos) {
    return "has a path: the bucket and the prefix have keys of their own";
  }
  std::string_view host = rest;
  if (rest.starts_with('[')) {
    const size_t close = rest.find(']');
    if (close == std::string_view::npos) return fmt::format("`{}` has no ]", endpoint);
    host = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    if (!AllOf(host, "ABCDEF:.")) return fmt::format("`{}` holds no IPv6 address", endpoint);
  } else {
    host = rest.substr(0, rest.find(':'));
    rest.remove_prefix(host.size());
    if (!AllOf(host, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-._")) {
      return fmt::format("`{}` holds a character that no host name has", endpoint);
    }
  }
  if (host.empty()) return fmt::format("`{}` names no host", endpoint);
  if (!rest.empty() && (rest.front() != ':' || !IsPort(rest.substr(1)))) {
    return fmt::format("`{}` has a wrong port", endpoint);
  }
  return "";
}

bool IsBucket(std::string_view name) {
  return name.size() >= 3 && name.size() <= 63 && AllOf(name, "-.") && name.front() != '-' &&
         name.front() != '.' && name.back() != '-' && name.back() != '.';
}

bool IsPrefix(std::string_view prefix) {
  for (std::string_view rest = prefix;;) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    rest.remove_prefix(slash + 1);
  }
}

void ReadS3(Fields* fields, Store* store) {
  if (fields->RequiredText("endpoint", "https://HOST of the service", &store->endpoint)) {
    if (const std::string fault = EndpointFault(store->endpoint); !fault.empty()) {
      fields->Fault("endpoint", fault);
    } else if (store->endpoint.starts_with("http://")) {
      fields->faults().Warn(fields->LineOf("endpoint"),
                            fmt::format("store `{}` is spoken to without TLS", store->name));
    }
  }
  if (fields->RequiredText("bucket", "the name of the bucket", &store->bucket) &&
      !IsBucket(store->bucket)) {
    fields->Fault("bucket", fmt::format("`{}` is no bucket name: 3 to 63 of a-z, 0-9, - and .",
                                        store->bucket));
  }
  if (fields->Text("prefix", &store->prefix) && !IsPrefix(store->prefix)) {
    fields->Fault("prefix", fmt::format("`{}`: write names with single slashes between them, such "
                                        "as backups/prod",
                                        store->prefix));
  }
  store->region = "us-east-1";
  fields->Text("region", &store->region);
  fields->SecretOf("credentials", &store->credentials);
  fields->Path("prune_credentials_file", &store->prune_credentials_file);
  fields->Path("ca_file", &store->ca_file);
}

// Asks for the keys of the other kind of store, which explains them better than "unknown key".
void RefuseKeys(Fields* fields, std::initializer_list<std::string_view> keys,
                std::string_view type) {
  for (const std::string_view key : keys) {
    if (fields->Has(key))
      fields->Fault(key, fmt::format("a store of type {} has no such key", type));
  }
}

}  // namespace

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= 63 && name.front() != '.' && name.front() != '-' &&
         AllOf(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_.");
}

Store ReadStore(Fields* fields) {
  Store store;
  if (fields->RequiredText("name", "what clusters call it", &store.name) && !IsName(store.name)) {
    fields->Fault(
        "name", fmt::format("`{}`: letters, digits, - _ and . are allowed, up to 63", store.name));
  }
  fields->Rate("bandwidth", &store.bandwidth);
  std::string type;
  if (!fields->RequiredText("type", "file or s3", &type)) {
    for (const char* key :
         {"path", "endpoint", "bucket", "prefix", "region", "credentials_file", "credentials_env",
          "credentials_command", "prune_credentials_file", "ca_file"}) {
      fields->Get(key);
    }
    return store;
  }
  if (type == "s3") {
    store.type = Store::Type::kS3;
    ReadS3(fields, &store);
    RefuseKeys(fields, {"path"}, type);
  } else {
    if (type != "file") fields->Fault("type", fmt::format("`{}` is neither file nor s3", type));
    if (!fields->Has("path") && type == "file") {
      fields->Fault("path", "is missing: the folder to write to");
    }
    fields->Path("path", &store.path);
    RefuseKeys(fields,
               {"endpoint", "bucket", "prefix", "region", "credentials_file", "credentials_env",
                "credentials_command", "prune_credentials_file", "ca_file"},
               type);
  }
  return store;
}

}  // namespace config
