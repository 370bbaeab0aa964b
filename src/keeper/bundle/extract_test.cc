#include "bundle/extract.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "base/random.h"
#include "base/testing.h"
#include "bundle/take.h"

namespace bundle {
namespace {

using absl::StatusCode;
using base::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

base::Files& Disk() { return base::PosixFiles(); }

void Put(const std::string& path, std::string_view content, uint32_t mode = 0600) {
  ASSERT_OK(base::MakeDirectories(Disk(), base::DirName(path), 0755));
  ASSERT_OK(base::WriteFileAtomically(Disk(), path, content, mode));
  ASSERT_EQ(::chmod(path.c_str(), mode), 0);
}

std::string Get(const std::string& path) {
  const auto content = base::ReadFile(Disk(), path);
  return content.ok() ? *content : content.status().ToString();
}

struct stat Info(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info;
}

std::string Tar(const std::vector<std::string>& paths, Taken* taken = nullptr) {
  std::string tar;
  const auto result = Take(paths, [&](std::string_view bytes) {
    tar += bytes;
    return absl::OkStatus();
  });
  EXPECT_OK(result);
  if (taken != nullptr && result.ok()) *taken = *result;
  return tar;
}

// A tar of entries that Take would never write.
struct Raw {
  std::string path;
  char type = '0';
  std::string target = "";
  std::string content = "x";
};
std::string RawTar(const std::vector<Raw>& entries) {
  std::string tar;
  for (const Raw& raw : entries) {
    char header[512] = {};
    std::memcpy(header, raw.path.data(), std::min<size_t>(raw.path.size(), 100));
    const size_t size = raw.type == '0' ? raw.content.size() : 0;
    std::snprintf(header + 100, 8, "%07o", 0644U);
    std::snprintf(header + 108, 8, "%07o", 0U);
    std::snprintf(header + 116, 8, "%07o", 0U);
    std::snprintf(header + 124, 12, "%011zo", size);
    std::snprintf(header + 136, 12, "%011o", 0U);
    header[156] = raw.type;
    std::memcpy(header + 157, raw.target.data(), std::min<size_t>(raw.target.size(), 100));
    std::memcpy(header + 257, "ustar\00000", 8);
    std::memset(header + 148, ' ', 8);
    unsigned sum = 0;
    for (const char c : header) sum += static_cast<unsigned char>(c);
    std::snprintf(header + 148, 8, "%06o", sum);
    tar.append(header, sizeof header);
    if (size > 0) tar += raw.content + std::string((512 - size % 512) % 512, '\0');
  }
  return tar + std::string(1024, '\0');
}

// The path of a file within the bundle.
std::string Inside(const std::string& path) { return path.substr(1); }

class BundleTest : public testing::Test {
 protected:
  void SetUp() override {
    Put(source_ / "pki/ca.crt", "certificate", 0644);
    Put(source_ / "pki/ca.key", "key", 0600);
    Put(source_ / "pki/etcd/server.key", std::string(100'000, 'k'), 0640);
    Put(source_ / "enc.yaml", "", 0400);
    ASSERT_EQ(::symlink("ca.crt", (source_ / "pki/link.crt").c_str()), 0);
    const timespec times[2] = {{1'700'000'000, 5}, {1'700'000'000, 123'456'789}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (source_ / "pki/ca.key").c_str(), times, 0), 0);
    ASSERT_EQ(::chmod((source_ / "pki").c_str(), 0750), 0);
  }
  const base::ScratchDirectory source_;
  const base::ScratchDirectory target_;
};

TEST_F(BundleTest, TakesModesTimesLinksAndFolders) {
  Taken taken;
  const std::string tar = Tar({source_.path()}, &taken);
  EXPECT_TRUE(taken.refused.empty());
  EXPECT_TRUE(taken.changed.empty());
  EXPECT_EQ(taken.entries, 8u);
  EXPECT_EQ(taken.bytes, 100'014u);
  ASSERT_OK_AND_ASSIGN(const std::vector<Entry> entries, Inspect(tar));
  ASSERT_EQ(entries.size(), 8u);
  std::map<std::string, Entry> by_path;
  for (const Entry& entry : entries) by_path[entry.path] = entry;
  const Entry& key = by_path.at(Inside(source_ / "pki/ca.key"));
  EXPECT_EQ(key.mode, 0600u);
  EXPECT_EQ(key.size, 3u);
  EXPECT_EQ(key.mtime_ns, 1'700'000'000'123'456'789);
  EXPECT_EQ(key.uid, static_cast<int64_t>(::getuid()));
  EXPECT_EQ(by_path.at(Inside(source_ / "pki")).type, Entry::Type::kFolder);
  EXPECT_EQ(by_path.at(Inside(source_ / "pki")).mode, 0750u);
  EXPECT_EQ(by_path.at(Inside(source_ / "pki/link.crt")).target, "ca.crt");
}

TEST_F(BundleTest, PutsBackWhatItTook) {
  const std::string tar = Tar({source_ / "pki/", source_ / "enc.yaml"});
  ASSERT_OK_AND_ASSIGN(const Extracted extracted, Extract(tar, {.into = target_ / "new"}));
  EXPECT_EQ(extracted.written.size(), 5u);
  EXPECT_EQ(extracted.owners_kept, ::geteuid() == 0);
  const std::string root = target_ / "new" + source_.path();
  EXPECT_EQ(Info(target_ / "new").st_mode & 07777, 0700u);
  EXPECT_EQ(Get(root + "/pki/etcd/server.key"), std::string(100'000, 'k'));
  EXPECT_EQ(Info(root + "/pki/etcd/server.key").st_mode & 07777, 0640u);
  EXPECT_EQ(Info(root + "/pki").st_mode & 07777, 0750u);
  EXPECT_EQ(Info(root + "/pki/ca.key").st_mtim.tv_nsec, 123'456'789);
  EXPECT_EQ(Get(root + "/enc.yaml"), "");
  char link[16] = {};
  EXPECT_EQ(::readlink((root + "/pki/link.crt").c_str(), link, sizeof link), 6);
  EXPECT_STREQ(link, "ca.crt");
  // Nothing is left beside.
  ASSERT_OK_AND_ASSIGN(const auto names, Disk().List(root + "/pki"));
  EXPECT_THAT(names, ElementsAre("ca.crt", "ca.key", "etcd", "link.crt"));
}

TEST_F(BundleTest, GivesFilesBackToTheirOwners) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give files away";
  ASSERT_EQ(::chown((source_ / "pki/ca.key").c_str(), 1234, 4321), 0);
  const std::string tar = Tar({source_ / "pki"});
  ASSERT_OK(Extract(tar, {.into = target_.path()}));
  const struct stat info = Info(target_.path() + source_.path() + "/pki/ca.key");
  EXPECT_EQ(info.st_uid, 1234u);
  EXPECT_EQ(info.st_gid, 4321u);
}

TEST_F(BundleTest, ReplacesNothingUnlessTold) {
  const std::string tar = Tar({source_ / "pki"});
  ASSERT_OK(Extract(tar, {.into = target_.path()}));
  const std::string root = target_.path() + source_.path() + "/pki/";
  // The same again changes nothing.
  ASSERT_OK_AND_ASSIGN(Extracted again, Extract(tar, {.into = target_.path()}));
  EXPECT_TRUE(again.written.empty());
  EXPECT_EQ(again.unchanged.size(), 4u);

  Put(root + "ca.crt", "another", 0644);
  ASSERT_OK(Disk().Remove(root + "ca.key"));
  EXPECT_THAT(Extract(tar, {.into = target_.path()}),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("pki/ca.crt; nothing was written")));
  EXPECT_FALSE(base::Exists(Disk(), root + "ca.key"));
  EXPECT_EQ(Get(root + "ca.crt"), "another");

  ASSERT_OK_AND_ASSIGN(again, Extract(tar, {.into = target_.path(), .overwrite = true}));
  EXPECT_THAT(again.written,
              UnorderedElementsAre(Inside(source_ / "pki/ca.crt"), Inside(source_ / "pki/ca.key")));
  EXPECT_EQ(Get(root + "ca.crt"), "certificate");
}

TEST_F(BundleTest, NeverReplacesAFolder) {
  const std::string tar = Tar({source_ / "pki/ca.crt"});
  const std::string there = target_.path() + source_.path() + "/pki/ca.crt";
  ASSERT_OK(base::MakeDirectories(Disk(), there, 0755));
  EXPECT_THAT(Extract(tar, {.into = target_.path(), .overwrite = true}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("is a folder there")));
}

TEST_F(BundleTest, DropsSetUidBits) {
  ASSERT_EQ(::chmod((source_ / "pki/ca.key").c_str(), 06755), 0);
  ASSERT_OK(Extract(Tar({source_ / "pki/ca.key"}), {.into = target_.path()}));
  EXPECT_EQ(Info(target_.path() + source_.path() + "/pki/ca.key").st_mode & 07777, 0755u);
}

TEST_F(BundleTest, NamesWhatItRefuses) {
  ASSERT_EQ(::mkfifo((source_ / "pki/pipe").c_str(), 0600), 0);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX};
  const std::string socket_path = source_ / "pki/kms.sock";
  std::strncpy(address.sun_path, socket_path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  Taken taken;
  const std::string tar = Tar({source_ / "pki", source_ / "missing", "/dev/null"}, &taken);
  ::close(fd);
  std::vector<std::string> refused;
  for (const Trouble& trouble : taken.refused) refused.push_back(trouble.path + " " + trouble.what);
  EXPECT_THAT(refused, UnorderedElementsAre(
                           socket_path + " is a socket", (source_ / "pki/pipe") + " is a pipe",
                           (source_ / "missing") + " does not exist", "/dev/null is a device"));
  ASSERT_OK_AND_ASSIGN(const auto entries, Inspect(tar));
  EXPECT_EQ(entries.size(), 6u);
}

TEST_F(BundleTest, NoticesAFileThatIsNotWhatItsSizeSaid) {
  // The kernel's files say 0 bytes and hold more, as a file does that grew while it was read.
  Taken taken;
  const std::string tar = Tar({"/proc/self/status"}, &taken);
  ASSERT_EQ(taken.changed.size(), 1u);
  EXPECT_EQ(taken.changed[0].path, "/proc/self/status");
  ASSERT_OK_AND_ASSIGN(const auto entries, Inspect(tar));
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_GT(entries[0].size, 0u);
}

TEST_F(BundleTest, TakesAPathOnceHoweverOftenItIsListed) {
  Taken taken;
  Tar({source_ / "pki", source_ / "pki/ca.crt", source_.path()}, &taken);
  EXPECT_EQ(taken.entries, 8u);
}

TEST_F(BundleTest, BoundsWhatItTakes) {
  const auto ignore = [](std::string_view) { return absl::OkStatus(); };
  EXPECT_THAT(Take({source_.path()}, ignore, {.bytes_max = 1000}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("list less")));
  EXPECT_THAT(Take({source_.path()}, ignore, {.entries_max = 3}),
              StatusIs(StatusCode::kResourceExhausted));
  ASSERT_OK_AND_ASSIGN(const Taken taken, Take({source_.path()}, ignore, {.file_bytes_max = 1000}));
  ASSERT_EQ(taken.refused.size(), 1u);
  EXPECT_THAT(taken.refused[0].what, HasSubstr("larger than"));
  EXPECT_THAT(Take({"pki"}, ignore), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(BundleTest, AFailingReceiverEndsIt) {
  const auto full = [](std::string_view) { return absl::ResourceExhaustedError("disk full"); };
  EXPECT_THAT(Take({source_.path()}, full), StatusIs(StatusCode::kResourceExhausted, "disk full"));
}

TEST_F(BundleTest, ATarThatWasNotFinishedLooksCut) {
  std::string tar;
  const auto append = [&](std::string_view bytes) {
    tar += bytes;
    return absl::OkStatus();
  };
  {
    TarWriter writer(append);
    ASSERT_OK(writer.Add({.path = "a"}, std::string(20'000, 'x')));
  }
  EXPECT_GT(tar.size(), 0u);
  EXPECT_THAT(Inspect(tar), StatusIs(StatusCode::kDataLoss));
}

TEST_F(BundleTest, KeepsNamesThatAreNoText) {
  Put(source_ /
          "pki/gr\xc3\xb6\xc3\x9f"
          "e",
      "x");
  Put(source_ / "pki/\xff\xfe", "y");
  ASSERT_OK(Extract(Tar({source_ / "pki"}), {.into = target_.path()}));
  EXPECT_EQ(Get(target_.path() + source_.path() +
                "/pki/gr\xc3\xb6\xc3\x9f"
                "e"),
            "x");
  EXPECT_EQ(Get(target_.path() + source_.path() + "/pki/\xff\xfe"), "y");
}

TEST_F(BundleTest, KeepsLongNames) {
  const std::string name(200, 'n');
  Put(source_ / ("pki/" + name + "/" + name), "x");
  ASSERT_OK(Extract(Tar({source_ / "pki"}), {.into = target_.path()}));
  EXPECT_EQ(Get(target_.path() + source_.path() + "/pki/" + name + "/" + name), "x");
}

TEST_F(BundleTest, ACutTarIsNeverTaken) {
  const std::string tar = Tar({source_ / "pki"});
  for (size_t n = 0; n < tar.size(); n += n < 4096 ? 1 : 509) {
    EXPECT_FALSE(Inspect(tar.substr(0, n)).ok()) << n;
  }
  EXPECT_THAT(Extract(tar.substr(0, tar.size() - 512), {.into = target_ / "cut"}),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_FALSE(base::Exists(Disk(), target_ / "cut"));
}

TEST_F(BundleTest, ADamagedTarNeverLeavesItsFolder) {
  const std::string tar = Tar({source_ / "pki/ca.crt", source_ / "pki/link.crt"});
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    base::SeededRandom random(seed);
    std::string damaged = tar;
    for (int i = 0; i < 3; ++i) {
      damaged[random.Below(damaged.size())] = static_cast<char>(random.Below(256));
    }
    const std::string into = target_ / std::to_string(seed);
    const auto result = Extract(damaged, {.into = into});
    if (!result.ok()) {
      EXPECT_NE(result.status().code(), StatusCode::kInternal) << result.status();
    }
  }
  ASSERT_OK_AND_ASSIGN(const auto names, Disk().List(target_.path()));
  for (const std::string& name : names) EXPECT_NE(std::atoi(name.c_str()), 0) << name;
}

TEST_F(BundleTest, RefusesHostileNames) {
  for (const std::string& path :
       {std::string("../evil"), std::string("/etc/evil"), std::string("a/../../evil"),
        std::string("a//b"), std::string("./a"), std::string("..")}) {
    EXPECT_THAT(Extract(RawTar({{.path = path}}), {.into = target_ / "in"}),
                StatusIs(StatusCode::kInvalidArgument))
        << path;
  }
  EXPECT_FALSE(base::Exists(Disk(), target_ / "evil"));
  EXPECT_FALSE(base::Exists(Disk(), target_ / "in"));
}

TEST_F(BundleTest, RefusesToWriteThroughALinkOfTheTar) {
  EXPECT_THAT(
      Extract(RawTar({{.path = "a", .type = '2', .target = target_.path()}, {.path = "a/evil"}}),
              {.into = target_ / "in"}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("a/evil: lies below a")));
  EXPECT_THAT(
      Extract(RawTar({{.path = "a", .type = '2', .target = target_ / "evil"}, {.path = "a"}}),
              {.into = target_ / "in"}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_FALSE(base::Exists(Disk(), target_ / "evil"));
}

TEST_F(BundleTest, RefusesToFollowALinkThatIsThere) {
  ASSERT_OK(Disk().MakeDirectory(target_ / "in", 0755));
  ASSERT_OK(Disk().MakeDirectory(target_ / "elsewhere", 0755));
  ASSERT_EQ(::symlink((target_ / "elsewhere").c_str(), (target_ / "in/a").c_str()), 0);
  EXPECT_THAT(Extract(RawTar({{.path = "a/evil"}}), {.into = target_ / "in", .overwrite = true}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("links are not followed")));
  EXPECT_FALSE(base::Exists(Disk(), target_ / "elsewhere/evil"));
  // A link where the file goes is replaced as a link; its target is not written.
  Put(target_ / "elsewhere/victim", "mine");
  ASSERT_EQ(::symlink((target_ / "elsewhere/victim").c_str(), (target_ / "in/f").c_str()), 0);
  EXPECT_THAT(Extract(RawTar({{.path = "f"}}), {.into = target_ / "in"}),
              StatusIs(StatusCode::kAlreadyExists));
  ASSERT_OK(Extract(RawTar({{.path = "f"}}), {.into = target_ / "in", .overwrite = true}));
  EXPECT_EQ(Get(target_ / "elsewhere/victim"), "mine");
  EXPECT_EQ(Get(target_ / "in/f"), "x");
}

TEST_F(BundleTest, RefusesOtherKindsOfEntries) {
  for (const char type : {'1', '3', '4', '6'}) {
    EXPECT_THAT(Inspect(RawTar({{.path = "a", .type = type, .target = "b"}})),
                StatusIs(StatusCode::kInvalidArgument))
        << type;
  }
  EXPECT_OK(Inspect(RawTar({{.path = "a"}, {.path = "b", .type = '5'}})));
}

TEST_F(BundleTest, RefusesARelativeFolder) {
  EXPECT_THAT(Extract(Tar({source_ / "enc.yaml"}), {.into = "here"}),
              StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace bundle
