#include "bundle/check.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <map>

#include "base/testing.h"
#include "bundle/certificates.h"
#include "bundle/contents.h"
#include "bundle/tar.h"

namespace bundle {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int64_t kNow = 1'786'328'046;  // 2026-08-10
constexpr int64_t kDay = 86'400;

std::string Drain(BIO* bio) {
  char* data = nullptr;
  const long n = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(n));
  BIO_free(bio);
  return text;
}

Key MakeKey() { return Key(EVP_EC_gen("P-256")); }

std::string KeyText(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  EXPECT_EQ(PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr), 1);
  return Drain(bio);
}

std::string EncryptedKeyText(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  EXPECT_EQ(
      PEM_write_bio_PKCS8PrivateKey(bio, key, EVP_aes_128_cbc(), "hunter2", 7, nullptr, nullptr),
      1);
  return Drain(bio);
}

std::string PublicText(EVP_PKEY* key) {
  BIO* bio = BIO_new(BIO_s_mem());
  EXPECT_EQ(PEM_write_bio_PUBKEY(bio, key), 1);
  return Drain(bio);
}

struct CertificateOptions {
  std::string name;
  std::string issuer;
  EVP_PKEY* key = nullptr;
  EVP_PKEY* issuer_key = nullptr;
  bool authority = false;
  int64_t from = kNow - kDay;
  int64_t to = kNow + 300 * kDay;
};

void SetName(X509_NAME* to, const std::string& name) {
  X509_NAME_add_entry_by_txt(to, "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
}

std::string CertificateText(const CertificateOptions& options) {
  const Certificate certificate(X509_new());
  X509* x = certificate.get();
  X509_set_version(x, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x), 7);
  ASN1_TIME_set(X509_getm_notBefore(x), options.from);
  ASN1_TIME_set(X509_getm_notAfter(x), options.to);
  SetName(X509_get_subject_name(x), options.name);
  SetName(X509_get_issuer_name(x), options.issuer);
  X509_set_pubkey(x, options.key);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(
      nullptr, nullptr, NID_basic_constraints, options.authority ? "critical,CA:TRUE" : "CA:FALSE");
  X509_add_ext(x, extension, -1);
  X509_EXTENSION_free(extension);
  EXPECT_GT(X509_sign(x, options.issuer_key, EVP_sha256()), 0);
  BIO* bio = BIO_new(BIO_s_mem());
  EXPECT_EQ(PEM_write_bio_X509(bio, x), 1);
  return Drain(bio);
}

std::string Base64(const std::string& bytes) {
  std::string text(bytes.size() / 3 * 4 + 5, '\0');
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                reinterpret_cast<const unsigned char*>(bytes.data()),
                                static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(n));
  return text;
}

constexpr const char* kManifest = R"(apiVersion: v1
kind: Pod
metadata: {name: kube-apiserver}
spec:
  containers:
    - name: kube-apiserver
      command:
        - kube-apiserver
        - --etcd-servers=https://10.0.0.1:2379,https://127.0.0.1:2379
        - --client-ca-file=/etc/kubernetes/pki/ca.crt
        - --tls-cert-file
        - /etc/kubernetes/pki/apiserver.crt
        - --encryption-provider-config=/etc/kubernetes/enc.yaml
)";

// A small control plane in which all is well; tests spoil one thing each.
class CheckTest : public testing::Test {
 protected:
  CheckTest() : ca_key_(MakeKey()), key_(MakeKey()), other_key_(MakeKey()) {
    Set("pki/ca.crt", Ca({}));
    Set("pki/ca.key", KeyText(ca_key_.get()));
    Set("pki/apiserver.crt", Leaf({}));
    Set("pki/apiserver.key", KeyText(key_.get()));
    Set("pki/sa.key", KeyText(other_key_.get()));
    Set("pki/sa.pub", PublicText(other_key_.get()));
    Set("manifests/kube-apiserver.yaml", kManifest);
    Set("enc.yaml", Encryption("aescbc", "k7", std::string(32, 's')));
    options_.now = std::chrono::seconds(kNow);
    options_.endpoints = {"https://10.0.0.1:2379", "https://10.0.0.2:2379"};
    options_.value_prefixes = {"k8s:enc:aescbc:v1:k7:"};
    options_.socket_exists = [this](const std::string& path) { return sockets_.contains(path); };
    options_.ask_kms = [this](const std::string&) { return kms_; };
  }

  std::string Ca(CertificateOptions options) {
    options.name = options.issuer = "kubernetes";
    if (options.key == nullptr) options.key = options.issuer_key = ca_key_.get();
    options.authority = true;
    return CertificateText(options);
  }
  std::string Leaf(CertificateOptions options) {
    options.name = "kube-apiserver";
    options.issuer = "kubernetes";
    if (options.key == nullptr) options.key = key_.get();
    if (options.issuer_key == nullptr) options.issuer_key = ca_key_.get();
    return CertificateText(options);
  }
  static std::string Encryption(const std::string& provider, const std::string& name,
                                const std::string& secret) {
    return fmt::format(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
        "  - resources: [secrets]\n    providers:\n      - {}:\n          keys:\n"
        "            - {{name: {}, secret: {}}}\n      - identity: {{}}\n",
        provider, name, Base64(secret));
  }

  void Set(const std::string& path, std::string content) {
    files_["etc/kubernetes/" + path] = std::move(content);
  }
  void Remove(const std::string& path) { files_.erase("etc/kubernetes/" + path); }

  Report Run() {
    std::string tar;
    const auto append = [&](std::string_view bytes) {
      tar += bytes;
      return absl::OkStatus();
    };
    TarWriter writer(append);
    for (const auto& [path, content] : files_) {
      EXPECT_OK(writer.Add({.path = path, .mode = 0600}, content));
    }
    for (const auto& [path, target] : links_) {
      EXPECT_OK(writer.Add({.path = path, .type = Entry::Type::kLink, .target = target}, ""));
    }
    EXPECT_OK(writer.Finish());
    const auto report = Check(tar, options_);
    EXPECT_OK(report);
    return report.ok() ? *report : Report();
  }
  // The texts of one level, "subject: text", below etc/kubernetes.
  std::vector<std::string> Texts(const Report& report, Finding::Level level) {
    std::vector<std::string> texts;
    for (const Finding& finding : report.findings) {
      std::string text = finding.subject + ": " + finding.text;
      if (text.starts_with("etc/kubernetes/")) text = text.substr(15);
      if (finding.level == level) texts.push_back(text);
    }
    return texts;
  }
  std::vector<std::string> Failures() { return Texts(Run(), Finding::Level::kFailed); }
  std::vector<std::string> Warnings() { return Texts(Run(), Finding::Level::kWarning); }

  Key ca_key_;
  Key key_;
  Key other_key_;
  std::map<std::string, std::string> files_;
  std::map<std::string, std::string> links_;
  std::set<std::string> sockets_;
  absl::StatusOr<KmsStatus> kms_ = KmsStatus{.version = "v2", .healthz = "ok", .key_id = "key-7"};
  CheckOptions options_;
};

TEST_F(CheckTest, AllIsWell) {
  const Report report = Run();
  EXPECT_TRUE(report.Passed());
  EXPECT_THAT(Texts(report, Finding::Level::kFailed), IsEmpty());
  EXPECT_THAT(Texts(report, Finding::Level::kWarning), IsEmpty());
  EXPECT_EQ(report.certificates, 2u);
  EXPECT_EQ(report.first_expiry_days, 300);
  EXPECT_THAT(
      Texts(report, Finding::Level::kOk),
      AllOf(Contains("pki/apiserver.crt: CN = kube-apiserver is valid, expires in 300 d"),
            Contains("pki/sa.pub: belongs to etc/kubernetes/pki/sa.key"),
            Contains(HasSubstr("names https://10.0.0.1:2379, https://127.0.0.1:2379, which")),
            Contains("enc.yaml: names aescbc key `k7`, which values in etcd need")));
}

TEST_F(CheckTest, CertificatesExpire) {
  Set("pki/apiserver.crt", Leaf({.to = kNow - 3 * kDay - 60}));
  Report report = Run();
  EXPECT_FALSE(report.Passed());
  EXPECT_EQ(report.first_expiry_days, -4);
  EXPECT_EQ(report.first_expiring, "etc/kubernetes/pki/apiserver.crt");
  EXPECT_THAT(Failures(),
              Contains(HasSubstr("pki/apiserver.crt: CN = kube-apiserver expired 3 d ago")));
  Set("pki/apiserver.crt", Leaf({.to = kNow - 60}));
  EXPECT_THAT(Failures(), Contains(HasSubstr("expired less than a day ago")));
  Set("pki/apiserver.crt", Leaf({.to = kNow + 29 * kDay + 60}));
  report = Run();
  EXPECT_TRUE(report.Passed());
  EXPECT_THAT(Texts(report, Finding::Level::kWarning),
              Contains(HasSubstr("expires in 29 d: renew")));
  Set("pki/apiserver.crt", Leaf({.from = kNow + kDay}));
  EXPECT_THAT(Failures(), Contains(HasSubstr("not valid yet")));
}

TEST_F(CheckTest, CertificatesMatchTheirKeys) {
  Set("pki/apiserver.key", KeyText(other_key_.get()));
  EXPECT_THAT(Failures(), Contains("pki/apiserver.crt: does not belong to the private key "
                                   "etc/kubernetes/pki/apiserver.key"));
  Set("pki/apiserver.key", KeyText(key_.get()));
  Set("pki/sa.pub", PublicText(key_.get()));
  EXPECT_THAT(Failures(), Contains(HasSubstr("pki/sa.pub: does not belong to the private key")));
  Set("pki/sa.pub", PublicText(other_key_.get()));
  // kubelet keeps both in one file.
  Set("pki/kubelet.pem", Leaf({}) + KeyText(key_.get()));
  EXPECT_THAT(Failures(), IsEmpty());
  Set("pki/kubelet.pem", Leaf({}) + KeyText(other_key_.get()));
  EXPECT_THAT(Failures(), Contains(HasSubstr("do not belong together")));
}

TEST_F(CheckTest, MissingAndUnreadableKeys) {
  Remove("pki/ca.key");
  EXPECT_THAT(Warnings(), IsEmpty()) << "a CA's key may well lie elsewhere";
  Remove("pki/apiserver.key");
  EXPECT_THAT(Warnings(), Contains("pki/apiserver.crt: its private key is not in the bundle"));
  Set("pki/apiserver.key", EncryptedKeyText(key_.get()));
  EXPECT_THAT(Warnings(), Contains(HasSubstr("encrypted with a password")));
  EXPECT_THAT(Failures(), IsEmpty());
  Set("pki/apiserver.key", "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n");
  EXPECT_THAT(Failures(), Contains("pki/apiserver.key: its private key does not parse"));
}

TEST_F(CheckTest, CertificatesMatchTheirCa) {
  // The CA was made anew under the same name.
  Set("pki/ca.crt", Ca({.key = other_key_.get(), .issuer_key = other_key_.get()}));
  Set("pki/ca.key", KeyText(other_key_.get()));
  EXPECT_THAT(Failures(),
              Contains(HasSubstr("pki/apiserver.crt: is not signed by the bundle's CA CN "
                                 "= kubernetes")));
  Remove("pki/ca.crt");
  Set("manifests/kube-apiserver.yaml", "kind: ConfigMap\n");
  EXPECT_THAT(Warnings(), Contains(HasSubstr("its CA CN = kubernetes is not in the bundle")));
  // Old and new in one file: during a rotation both count.
  Set("pki/ca.crt", Ca({.key = other_key_.get(), .issuer_key = other_key_.get()}) + Ca({}));
  EXPECT_THAT(Failures(), IsEmpty());
}

TEST_F(CheckTest, DamagedCertificates) {
  std::string text = Leaf({});
  Set("pki/apiserver.crt", text.substr(0, text.size() / 2));
  EXPECT_THAT(Failures(), Contains(HasSubstr("pki/apiserver.crt: it is cut")));
  text[text.size() / 2] = '!';
  Set("pki/apiserver.crt", text);
  EXPECT_THAT(Failures(), Contains("pki/apiserver.crt: a certificate in it does not parse"));
  Set("pki/apiserver.crt", "");
  EXPECT_THAT(Failures(), Contains("pki/apiserver.crt: it holds no certificate"));
}

TEST_F(CheckTest, LooksIntoKubeconfigs) {
  const auto kubeconfig = [&](EVP_PKEY* key, int64_t to) {
    return fmt::format(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: kubernetes\n  cluster:\n    "
        "certificate-authority-data: {}\nusers:\n- name: admin\n  user:\n    "
        "client-certificate-data: {}\n    client-key-data: {}\n",
        Base64(Ca({})), Base64(Leaf({.to = to})), Base64(KeyText(key)));
  };
  Set("admin.conf", kubeconfig(key_.get(), kNow + 100 * kDay));
  Report report = Run();
  EXPECT_TRUE(report.Passed());
  EXPECT_EQ(report.certificates, 4u);
  EXPECT_EQ(report.first_expiry_days, 100);
  Set("admin.conf", kubeconfig(key_.get(), kNow - kDay));
  EXPECT_THAT(Failures(),
              Contains(HasSubstr("admin.conf (user admin): CN = kube-apiserver expired")));
  Set("admin.conf", kubeconfig(other_key_.get(), kNow + kDay));
  EXPECT_THAT(Failures(),
              Contains(HasSubstr("admin.conf (user admin): its certificate and its private "
                                 "key do not belong together")));
}

TEST_F(CheckTest, ManifestsNameWhatIsBackedUp) {
  std::string manifest = kManifest;
  manifest.replace(manifest.find("10.0.0.1"), 8, "10.9.9.9");
  Set("manifests/kube-apiserver.yaml", manifest);
  EXPECT_THAT(Failures(), Contains(AllOf(HasSubstr("manifests/kube-apiserver.yaml"),
                                         HasSubstr("name https://10.9.9.9:2379, which is not"))));
  manifest = kManifest;
  manifest.replace(manifest.find("--etcd-servers"), 14, "--other-server");
  Set("manifests/kube-apiserver.yaml", manifest);
  EXPECT_THAT(Failures(), Contains(HasSubstr("names no --etcd-servers")));
  Set("manifests/kube-apiserver.yaml",
      kManifest +
          std::string("        - --etcd-servers-overrides=/events#https://10.0.0.9:2379\n"));
  EXPECT_THAT(Warnings(), Contains(HasSubstr("keeps some objects elsewhere")));
}

TEST_F(CheckTest, ManifestsNameFilesThatAreThere) {
  Remove("enc.yaml");
  EXPECT_THAT(Failures(),
              Contains(HasSubstr("--encryption-provider-config names /etc/kubernetes/enc.yaml")));
  // Through links as well.
  Set("real/enc.yaml", Encryption("aescbc", "k7", std::string(32, 's')));
  links_["etc/kubernetes/enc.yaml"] = "real/enc.yaml";
  EXPECT_THAT(Failures(), IsEmpty());
  links_["etc/kubernetes/enc.yaml"] = "/etc/kubernetes/manifests/../real/enc.yaml";
  EXPECT_THAT(Failures(), IsEmpty());
  links_["etc/kubernetes/enc.yaml"] = "enc.yaml";
  EXPECT_THAT(Failures(), Contains(HasSubstr("not in the bundle")));
}

TEST_F(CheckTest, ManifestsParse) {
  Set("manifests/etcd.yaml", "spec: [1, 2\n");
  EXPECT_THAT(Failures(), Contains(HasSubstr("manifests/etcd.yaml: does not parse as YAML: line")));
  Set("manifests/etcd.yaml", "kind: Pod\nspec: {}\n");
  EXPECT_THAT(Failures(), Contains("manifests/etcd.yaml: is a pod without containers"));
}

TEST_F(CheckTest, NamesTheDecryptionKeyThatIsMissing) {
  options_.value_prefixes.insert("k8s:enc:aescbc:v1:k6:");
  EXPECT_THAT(Failures(),
              Contains("enc.yaml: does not name aescbc key `k6` (v1), by which values in etcd are "
                       "encrypted: after a restore nobody could read them"));
  options_.value_prefixes = {"k8s:enc:secretbox:v1:k7:"};
  EXPECT_THAT(Failures(), Contains(HasSubstr("does not name secretbox key `k7`")));
  options_.value_prefixes = {"k8s:enc:odd"};
  EXPECT_THAT(Warnings(), Contains(HasSubstr("no known form")));
  options_.value_prefixes = {"k8s:enc:aescbc:v1:k7:"};
  Set("enc.yaml", "kind: Other\n");
  EXPECT_THAT(Failures(), Contains(HasSubstr("encryption configuration: is not in the bundle")));
  options_.value_prefixes.clear();
  EXPECT_THAT(Failures(), IsEmpty());
}

TEST_F(CheckTest, EncryptionConfigurationsAreWellFormedAndStaySecret) {
  const std::string secret = "correct horse";
  Set("enc.yaml", Encryption("aescbc", "k7", secret));
  const Report report = Run();
  EXPECT_THAT(Texts(report, Finding::Level::kFailed),
              Contains(HasSubstr("no base64 of a key's length")));
  for (const Finding& finding : report.findings) {
    EXPECT_THAT(finding.text, AllOf(Not(HasSubstr(secret)), Not(HasSubstr(Base64(secret)))));
  }
  Set("enc.yaml", Encryption("rot13", "k7", std::string(32, 's')));
  EXPECT_THAT(Failures(), Contains(HasSubstr("the provider `rot13` is not known")));
  Set("enc.yaml", "kind: EncryptionConfiguration\n");
  EXPECT_THAT(Failures(), Contains("enc.yaml: names no resources"));
  Set("enc.yaml", "kind: EncryptionConfiguration\nresources: [{providers: []}]\n");
  EXPECT_THAT(Failures(), Contains("enc.yaml: has resources without providers"));
  options_.value_prefixes = {"k8s:enc:secretbox:v1:k:"};
  Set("enc.yaml", Encryption("secretbox", "k", std::string(16, 's')));
  EXPECT_THAT(Failures(), Contains(HasSubstr("secretbox key `k` is no base64")));
}

TEST_F(CheckTest, ReadsTheVersionOfKubernetes) {
  EXPECT_EQ(Run().kubernetes_version, "");
  const auto with_image = [&](const std::string& image) {
    Set("manifests/kube-apiserver.yaml", std::string(kManifest) + "      image: " + image + "\n");
    return Run().kubernetes_version;
  };
  EXPECT_EQ(with_image("registry.k8s.io/kube-apiserver:v1.37.2"), "v1.37.2");
  EXPECT_EQ(with_image("host:5000/kube-apiserver:v1.37.2-custom@sha256:00"), "v1.37.2-custom");
  EXPECT_EQ(with_image("host:5000/kube-apiserver"), "");
  EXPECT_EQ(with_image("registry.k8s.io/kube-apiserver:latest"), "");
}

TEST_F(CheckTest, TriesTheSocketOfAKmsPlugin) {
  Set("enc.yaml", R"(kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - kms: {apiVersion: v2, name: vault, endpoint: "unix:///run/kms.sock", timeout: 3s}
  - resources: [configmaps]
    providers:
      - kms: {apiVersion: v2, name: vault, endpoint: "unix:///run/kms.sock"}
)");
  options_.value_prefixes = {"k8s:enc:kms:v2:vault:"};
  EXPECT_THAT(Failures(), testing::ElementsAre(HasSubstr("there is no socket /run/kms.sock")));
  sockets_ = {"/run/kms.sock"};
  const Report report = Run();
  EXPECT_TRUE(report.Passed());
  ASSERT_EQ(report.kms.size(), 1u);
  EXPECT_EQ(report.kms[0].name, "vault");
  EXPECT_EQ(report.kms[0].endpoint, "unix:///run/kms.sock");
  EXPECT_EQ(report.kms[0].key_id, "key-7");
  kms_ = KmsStatus{.version = "v2", .healthz = "the HSM is sealed", .key_id = "key-7"};
  EXPECT_THAT(Failures(), testing::ElementsAre(HasSubstr("not well: the HSM is sealed")));
  kms_ = absl::UnavailableError("connection refused");
  EXPECT_THAT(Failures(), testing::ElementsAre(
                              HasSubstr("the plugin at unix:///run/kms.sock does not answer")));
  kms_ = KmsStatus{.version = "v2", .healthz = "ok", .key_id = "key-7"};
  options_.value_prefixes = {"k8s:enc:kms:v1:vault:"};
  EXPECT_THAT(Failures(), Contains(HasSubstr("does not name KMS provider `vault` (v1)")));
  options_.socket_exists = nullptr;
  EXPECT_THAT(Failures(), Contains(HasSubstr("there is no socket")));
}

TEST(CheckPaths, TakesWhatIsThereAndNamesWhatIsNot) {
  const base::ScratchDirectory dir;
  ASSERT_OK(base::WriteFileAtomically(base::PosixFiles(), dir / "a.yaml", "kind: Pod\n", 0600));
  ASSERT_OK_AND_ASSIGN(const Report report, CheckPaths({dir.path(), dir / "missing"}, {}));
  ASSERT_EQ(report.findings.size(), 2u);
  EXPECT_EQ(report.findings[0].text, "is a pod without containers");
  EXPECT_EQ(report.findings[1].subject, dir / "missing");
  EXPECT_EQ(report.findings[1].text, "does not exist");
  EXPECT_THAT(Check("no tar", {}), base::StatusIs(absl::StatusCode::kDataLoss));
}

TEST(Base64, IsReadStrictly) {
  EXPECT_EQ(FromBase64("aGVsbG8="), "hello");
  EXPECT_EQ(FromBase64("aGVs\nbG8="), "hello");
  EXPECT_EQ(FromBase64(""), "");
  for (const char* text : {"a", "aGVsbG8", "aG!sbG8="}) EXPECT_EQ(FromBase64(text), std::nullopt);
}

}  // namespace
}  // namespace bundle
