// S3Store against a server that says what it is told: what is sent, and what becomes of answers
// that no good server gives. tests/interop/stores runs it against a real one.
#include "stores/s3_store.h"

#include <atomic>
#include <cstdlib>

#include "base/testing.h"
#include "stores/s3_errors.h"
#include "stores/s3_upload.h"
#include "stores/testing/manual_time.h"
#include "stores/testing/scripted_server.h"

namespace stores {
namespace {

using base::IsOkAndHolds;
using base::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr char kSecret[] = "very/secret+key";

std::string ErrorBody(const std::string& code, const std::string& more = "") {
  return fmt::format(
      "<?xml version=\"1.0\"?>\n<Error><Code>{}</Code><Message>It says so.</Message>"
      "{}<RequestId>req-1</RequestId></Error>",
      code, more);
}

class S3StoreTest : public testing::Test {
 protected:
  // Whatever proxy the machine has, loopback is not behind it.
  static void SetUpTestSuite() { ::setenv("no_proxy", "127.0.0.1", 1); }

  // What the server answers from now on; replaced before the store is used.
  void Script(ScriptedServer::Script script) {
    server_ = std::make_unique<ScriptedServer>(std::move(script));
    Open({});
  }
  void Open(S3StoreOptions options, std::string session_token = "") {
    options.endpoint.url = server_->url();
    options.endpoint.bucket = "bucket";
    options.prefix = "pre";
    store_ = S3Store::Open(clock_, sleeper_, std::move(options),
                           [session_token]() -> absl::StatusOr<S3Credentials> {
                             S3Credentials credentials;
                             credentials.access_key = "AKID";
                             credentials.secret_key = vault::Secret(std::string(kSecret));
                             credentials.session_token = vault::Secret(std::string(session_token));
                             return credentials;
                           })
                 .value();
  }
  void AlwaysAnswer(int status, const std::string& body,
                    const std::vector<std::string>& headers = {}) {
    Script([=](const HttpRequest&) { return ScriptedServer::Answer(status, body, headers); });
  }
  Deadline Soon() const { return Deadline::In(clock_, std::chrono::minutes(2)); }
  absl::StatusOr<std::string> Get(uint64_t offset, uint64_t length) {
    std::string bytes;
    vault::StringSink sink(&bytes, 10 << 20);
    const absl::Status status = store_->Get("a", offset, length, sink, Soon());
    got_bytes_ = bytes.size();
    RETURN_IF_ERROR(status);
    return bytes;
  }

  ManualClock clock_;
  ManualSleeper sleeper_{clock_};
  std::unique_ptr<ScriptedServer> server_;
  std::unique_ptr<S3Store> store_;
  size_t got_bytes_ = 0;  // of the last Get
};

TEST_F(S3StoreTest, SignsEverythingThatMatters) {
  AlwaysAnswer(200, "");
  Open({}, "token/1");
  ASSERT_OK(store_->Put("x=1/a", BytesContent("hello"), Soon()));
  const std::vector<HttpRequest> requests = server_->requests();
  ASSERT_EQ(requests.size(), 1U);
  const HttpRequest& put = requests[0];
  EXPECT_EQ(put.method, "PUT");
  EXPECT_EQ(put.target, "/bucket/pre/x%3D1/a");
  EXPECT_EQ(put.body, "hello");
  EXPECT_EQ(put.Header("if-none-match"), "*");
  EXPECT_EQ(put.Header("x-amz-content-sha256"), base::DigestToHex(base::Sha256("hello")));
  EXPECT_EQ(put.Header("x-amz-meta-sha256"), base::DigestToHex(base::Sha256("hello")));
  EXPECT_EQ(put.Header("x-amz-checksum-sha256"), "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=");
  EXPECT_EQ(put.Header("x-amz-security-token"), "token/1");
  EXPECT_THAT(put.Header("authorization"),
              AllOf(HasSubstr("AWS4-HMAC-SHA256"), HasSubstr("Credential=AKID/"),
                    HasSubstr("/us-east-1/s3/aws4_request"), HasSubstr("if-none-match;"),
                    HasSubstr("x-amz-content-sha256;"), HasSubstr("x-amz-meta-sha256;"),
                    HasSubstr("x-amz-security-token"), Not(HasSubstr(kSecret))));
}

TEST_F(S3StoreTest, ReplaceIsUnconditional) {
  AlwaysAnswer(200, "");
  ASSERT_OK(store_->Replace("head", "h", Soon()));
  EXPECT_EQ(server_->requests().at(0).Header("if-none-match"), "");
}

TEST_F(S3StoreTest, QueriesAreSortedAndEncoded) {
  AlwaysAnswer(200, "<ListBucketResult/>");
  ASSERT_OK(store_->List({.prefix = "a=/", .after = "a=/b", .limit = 7}, Soon()).status());
  EXPECT_EQ(server_->requests().at(0).target,
            "/bucket?list-type=2&max-keys=7&prefix=pre%2Fa%3D%2F&start-after=pre%2Fa%3D%2Fb");
  EXPECT_EQ(EncodeQuery({{"uploads", ""}, {"prefix", "a:b c"}}), "prefix=a%3Ab%20c&uploads=");
  EXPECT_EQ(PercentEncode("a/b~\xc3", true), "a/b~%C3");
}

TEST_F(S3StoreTest, EndpointsAndBucketsAreChecked) {
  const auto open = [&](const std::string& url, const std::string& bucket) {
    return S3Client::Open(clock_, {.url = url, .bucket = bucket}, S3CredentialsFromEnvironment())
        .status();
  };
  EXPECT_OK(open("https://s3.example.org", "cp-backups"));
  EXPECT_OK(open("http://[::1]:9000/", "a.b"));
  for (const char* url : {"", "s3.example.org", "ftp://x", "https://", "https://user:pw@x",
                          "https://x/path", "https://x?q", "https://x#f", "https://x y"}) {
    EXPECT_THAT(open(url, "bucket"), StatusIs(absl::StatusCode::kInvalidArgument)) << url;
  }
  for (const char* bucket : {"", "ab", "Upper", "a/b", "a b", "a_b"}) {
    EXPECT_THAT(open("https://x", bucket), StatusIs(absl::StatusCode::kInvalidArgument)) << bucket;
  }
}

TEST_F(S3StoreTest, ErrorsSayWhatToDo) {
  const struct {
    int status;
    std::string body;
    absl::StatusCode code;
    std::string said;
  } cases[] = {
      {403, ErrorBody("AccessDenied"), absl::StatusCode::kPermissionDenied, "policy of the bucket"},
      {403, ErrorBody("InvalidAccessKeyId"), absl::StatusCode::kPermissionDenied, "access key"},
      {403, ErrorBody("SignatureDoesNotMatch"), absl::StatusCode::kPermissionDenied, "secret key"},
      {400, ErrorBody("ExpiredToken"), absl::StatusCode::kPermissionDenied, "temporary"},
      {404, ErrorBody("NoSuchBucket"), absl::StatusCode::kFailedPrecondition,
       "create the bucket bucket"},
      {404, ErrorBody("SomethingElse"), absl::StatusCode::kFailedPrecondition, "endpoint"},
      {301, ErrorBody("PermanentRedirect"), absl::StatusCode::kFailedPrecondition, "region"},
      {307, "", absl::StatusCode::kFailedPrecondition, "region or endpoint"},
      {400, ErrorBody("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"),
       absl::StatusCode::kFailedPrecondition, "names region eu-west-1"},
      {503, ErrorBody("SlowDown"), absl::StatusCode::kUnavailable, "SlowDown"},
      {500, ErrorBody("InternalError"), absl::StatusCode::kUnavailable, "It says so."},
      {502, "<html>proxy</html>", absl::StatusCode::kUnavailable, "HTTP status 502"},
      {429, "", absl::StatusCode::kUnavailable, "429"},
      {409, ErrorBody("ConditionalRequestConflict"), absl::StatusCode::kAborted, "Conflict"},
      {507, "", absl::StatusCode::kResourceExhausted, "prune"},
      {403, ErrorBody("QuotaExceeded"), absl::StatusCode::kResourceExhausted, "free space"},
      {400, ErrorBody("BadDigest"), absl::StatusCode::kAborted, "BadDigest"},
      {501, ErrorBody("NotImplemented"), absl::StatusCode::kUnimplemented, "NotImplemented"},
      {400, ErrorBody("Odd"), absl::StatusCode::kInternal, "Odd: It says so. (request req-1)"},
  };
  for (const auto& answer : cases) {
    AlwaysAnswer(answer.status, answer.body);
    EXPECT_THAT(store_->Put("a", BytesContent("x"), Soon()),
                StatusIs(answer.code, AllOf(HasSubstr(answer.said), HasSubstr("PUT http://"),
                                            HasSubstr("/bucket/pre/a"), Not(HasSubstr("\n")),
                                            Not(HasSubstr(kSecret)))))
        << answer.body;
  }
}

TEST_F(S3StoreTest, AWrongClockIsMeasured) {
  // The test's clock stands at 2026-09-21T14:13:20Z.
  AlwaysAnswer(403, ErrorBody("RequestTimeTooSkewed"), {"date: Mon, 21 Sep 2026 14:18:20 GMT"});
  EXPECT_THAT(store_->Put("a", BytesContent("x"), Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("set this machine's clock: the server's is 300 s ahead of it")));
}

TEST_F(S3StoreTest, ARefusalWithoutAWordIsPutDownToAWrongClock) {
  Script([](const HttpRequest&) {
    return std::string(
        "HTTP/1.1 403 Forbidden\r\ndate: Sun, 20 Sep 2026 14:13:20 GMT\r\n"
        "content-length: 0\r\n\r\n");
  });
  EXPECT_THAT(store_->Stat("a", Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("set this machine's clock: the server's is 86400 s behind it")));
}

// The first Put's answer is lost; the second is refused by its own effect.
TEST_F(S3StoreTest, APutWhoseAnswerWasLostIsRecognised) {
  std::atomic<int> puts{0};
  const std::string digest = base::DigestToHex(base::Sha256("hello"));
  Script([&](const HttpRequest& request) -> std::string {
    if (request.method == "HEAD") {
      return fmt::format("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nx-amz-meta-sha256: {}\r\n\r\n",
                         digest);
    }
    return puts++ == 0 ? "" : ScriptedServer::Answer(412, ErrorBody("PreconditionFailed"));
  });
  EXPECT_THAT(store_->Put("a", BytesContent("hello"), Soon()),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_OK(store_->Put("a", BytesContent("hello"), Soon()));
  EXPECT_THAT(store_->Put("a", BytesContent("jello"), Soon()),
              StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(S3StoreTest, ABareNotFoundMayBeTheBucket) {
  Script([](const HttpRequest& request) {
    return request.method == "HEAD" ? std::string("HTTP/1.1 404 Not Found\r\n\r\n")
                                    : ScriptedServer::Answer(404, ErrorBody("NoSuchBucket"));
  });
  EXPECT_THAT(store_->Stat("a", Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("NoSuchBucket")));
}

TEST_F(S3StoreTest, OnlyTheRangeThatWasAskedForIsPassedOn) {
  AlwaysAnswer(206, "23456", {"content-range: bytes 2-6/10"});
  EXPECT_THAT(Get(2, 5), IsOkAndHolds("23456"));
  EXPECT_EQ(server_->requests().at(0).Header("range"), "bytes=2-6");
  EXPECT_THAT(server_->requests().at(0).Header("authorization"), HasSubstr("range;"));
  for (const auto& [status, range, code] :
       {std::tuple(200, "", absl::StatusCode::kInternal),
        std::tuple(206, "", absl::StatusCode::kInternal),
        std::tuple(206, "content-range: bytes 3-7/10", absl::StatusCode::kInternal),
        std::tuple(206, "content-range: bytes 2-5/10", absl::StatusCode::kUnavailable),
        std::tuple(206, "content-range: bytes 2-5/6", absl::StatusCode::kOutOfRange)}) {
    AlwaysAnswer(status, "23456", {range});
    EXPECT_THAT(Get(2, 5), StatusIs(code)) << range;
    EXPECT_EQ(got_bytes_, 0U) << range;
  }
  AlwaysAnswer(416, ErrorBody("InvalidRange"));
  EXPECT_THAT(Get(2, 5), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(Get(2, kToTheEnd - 1), StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_F(S3StoreTest, ABodyThatBreaksOffIsNoObject) {
  Script([](const HttpRequest&) {
    return std::string("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this");
  });
  EXPECT_THAT(Get(0, kToTheEnd), StatusIs(absl::StatusCode::kUnavailable));
  Script([](const HttpRequest&) { return std::string("HTTP/1.1 200 OK\r\n\r\nno length"); });
  EXPECT_THAT(Get(0, kToTheEnd), StatusIs(absl::StatusCode::kInternal, HasSubstr("how long")));
  Script([](const HttpRequest&) { return std::string("what?\r\n\r\n"); });
  EXPECT_THAT(Get(0, kToTheEnd), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(S3StoreTest, ListsThatMakeNoSenseAreErrors) {
  const auto object = [](const std::string& key) {
    return "<Contents><Key>" + key + "</Key><Size>1</Size></Contents>";
  };
  const auto answer = [&](const std::string& inside) {
    AlwaysAnswer(200, "<ListBucketResult>" + inside + "</ListBucketResult>");
    return store_->List({}, Soon());
  };
  EXPECT_EQ(answer(object("pre/a") + object("other/b") + object("pre/.c") + object("pre/d e") +
                   object("pre/f"))
                .value(),
            (std::vector<ObjectInfo>{{.name = "a", .bytes = 1}, {.name = "f", .bytes = 1}}));
  EXPECT_THAT(answer(object("pre/b") + object("pre/a")),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("not in order")));
  EXPECT_THAT(answer(object("pre/a") + object("pre/a")), StatusIs(absl::StatusCode::kInternal));
  AlwaysAnswer(200, "<html/>");
  EXPECT_THAT(store_->List({}, Soon()), StatusIs(absl::StatusCode::kInternal));
  AlwaysAnswer(200, std::string(9 << 20, ' '));
  EXPECT_THAT(store_->List({}, Soon()),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("more than")));
}

TEST_F(S3StoreTest, AListGoesOnWithItsToken) {
  std::atomic<int> pages{0};
  Script([&](const HttpRequest&) {
    const int page = pages++;
    return ScriptedServer::Answer(
        200, fmt::format("<ListBucketResult><IsTruncated>{}</IsTruncated>"
                         "<NextContinuationToken>t/{}</NextContinuationToken>"
                         "<Contents><Key>pre/{}</Key><Size>1</Size></Contents></ListBucketResult>",
                         page < 2 ? "true" : "false", page, page));
  });
  EXPECT_EQ(store_->List({}, Soon()).value().size(), 3U);
  EXPECT_THAT(server_->requests().at(2).target, HasSubstr("?continuation-token=t%2F1&list-type=2"));
}

// A multipart upload against a server that keeps a little state.
class UploadTest : public S3StoreTest {
 protected:
  void SetUp() override {
    Script([this](const HttpRequest& request) { return Answer(request); });
  }
  std::string Answer(const HttpRequest& request) {
    if (request.method == "HEAD") return "HTTP/1.1 404 Not Found\r\n\r\n";
    if (request.method == "GET") return ScriptedServer::Answer(200, "<ListBucketResult/>");
    if (request.target.ends_with("?uploads=")) {
      return ScriptedServer::Answer(200,
                                    "<InitiateMultipartUploadResult><UploadId>id/1</UploadId>"
                                    "</InitiateMultipartUploadResult>");
    }
    if (request.method == "DELETE") {
      ++aborts_;
      return "HTTP/1.1 204 No Content\r\n\r\n";
    }
    if (request.method == "PUT") {
      if (part_failures_ > 0) {
        --part_failures_;
        return ScriptedServer::Answer(part_status_, "");
      }
      received_bytes_ += request.body.size();
      return ScriptedServer::Answer(200, "", {"etag: \"e<1>\""});
    }
    return ScriptedServer::Answer(
        200, complete_fails_ ? ErrorBody("InternalError") : "<CompleteMultipartUploadResult/>");
  }
  // The request that made the object visible; empty when there was none.
  HttpRequest Completion() const {
    HttpRequest completion;
    for (const HttpRequest& request : server_->requests()) {
      if (request.method == "POST" && !request.target.ends_with("?uploads=")) completion = request;
    }
    return completion;
  }

  std::atomic<int> part_failures_{0};
  std::atomic<int> part_status_{503};
  std::atomic<bool> complete_fails_{false};
  std::atomic<int> aborts_{0};
  std::atomic<uint64_t> received_bytes_{0};
  const std::string bytes_ = std::string((33 << 20) + 5, 'm');
};

TEST_F(UploadTest, IsCompletedWithEveryPart) {
  ASSERT_OK(store_->Put("big", BytesContent(bytes_), Soon()));
  EXPECT_EQ(received_bytes_, bytes_.size());
  EXPECT_EQ(Completion().Header("if-none-match"), "*");
  std::string expected = "<CompleteMultipartUpload>";
  for (uint64_t i = 0; i < 3; ++i) {
    const std::string part = bytes_.substr(i * kPartBytesMin, kPartBytesMin);
    expected += fmt::format(
        "<Part><PartNumber>{}</PartNumber><ETag>\"e&lt;1&gt;\"</ETag>"
        "<ChecksumSHA256>{}</ChecksumSHA256></Part>",
        i + 1, S3Checksum(base::Sha256(part)));
  }
  EXPECT_EQ(Completion().body, expected + "</CompleteMultipartUpload>");
  EXPECT_EQ(aborts_, 0);
  for (const HttpRequest& request : server_->requests()) {
    if (request.method != "PUT") continue;
    EXPECT_THAT(request.target, HasSubstr("&uploadId=id%2F1"));
    EXPECT_EQ(request.Header("x-amz-content-sha256"),
              base::DigestToHex(base::Sha256(request.body)));
  }
}

TEST_F(UploadTest, APartIsSentAgain) {
  part_failures_ = 2;
  ASSERT_OK(store_->Put("big", BytesContent(bytes_), Soon()));
  EXPECT_EQ(received_bytes_, bytes_.size());
  EXPECT_GE(sleeper_.slept(), 1);
}

TEST_F(UploadTest, IsAbortedWhenAPartCannotBeSent) {
  part_failures_ = 1'000;
  EXPECT_THAT(store_->Put("big", BytesContent(bytes_), Soon()),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(aborts_, 1);
  EXPECT_EQ(Completion().method, "");
  part_status_ = 403;
  EXPECT_THAT(store_->Put("big", BytesContent(bytes_), Soon()),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(aborts_, 2);
}

TEST_F(UploadTest, AnErrorUnderStatus200IsAnError) {
  complete_fails_ = true;
  EXPECT_THAT(store_->Put("big", BytesContent(bytes_), Soon()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("InternalError")));
  EXPECT_EQ(aborts_, 1);
}

TEST(PartBytes, MakesNoMorePartsThanAllowed) {
  EXPECT_EQ(PartBytes(1), kPartBytesMin);
  EXPECT_EQ(PartBytes(kPartBytesMin * kPartsMax), kPartBytesMin);
  for (const uint64_t bytes : {kPartBytesMin * kPartsMax + 1, uint64_t{5} << 40}) {
    const uint64_t part = PartBytes(bytes);
    EXPECT_LE((bytes + part - 1) / part, kPartsMax);
    EXPECT_EQ(part % (1 << 20), 0U);
  }
}

TEST_F(S3StoreTest, AServiceThatOverwritesIsFoundOutAndWatched) {
  Script([](const HttpRequest& request) -> std::string {
    if (request.method == "PUT") return ScriptedServer::Answer(200, "");
    if (request.method == "HEAD") return "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    if (request.target.ends_with("?versioning=")) {
      return ScriptedServer::Answer(200,
                                    "<VersioningConfiguration><Status>Enabled</Status>"
                                    "</VersioningConfiguration>");
    }
    if (request.target.ends_with("?object-lock=")) {
      return ScriptedServer::Answer(403, ErrorBody("AccessDenied"));
    }
    return ScriptedServer::Answer(200, "<ListBucketResult/>");
  });
  ASSERT_OK_AND_ASSIGN(const Description description, store_->Describe(Soon()));
  EXPECT_EQ(description.write_once, false);
  EXPECT_EQ(description.versioning, true);
  EXPECT_EQ(description.object_lock, std::nullopt);
  EXPECT_EQ(description.warnings.size(), 2U) << "and plain http";
  const size_t before = server_->requests().size();
  EXPECT_THAT(store_->Put("a", BytesContent("other length"), Soon()),
              StatusIs(absl::StatusCode::kAlreadyExists));
  for (size_t i = before; i < server_->requests().size(); ++i) {
    EXPECT_EQ(server_->requests()[i].method, "HEAD") << "nothing is sent over what is there";
  }
}

TEST_F(S3StoreTest, CredentialsThatMayOnlyReadAreEnoughToDescribe) {
  Script([](const HttpRequest& request) {
    return request.method == "PUT" ? ScriptedServer::Answer(403, ErrorBody("AccessDenied"))
           : request.target.find("list-type") != std::string::npos
               ? ScriptedServer::Answer(200, "<ListBucketResult/>")
               : ScriptedServer::Answer(404, ErrorBody("ObjectLockConfigurationNotFoundError"));
  });
  ASSERT_OK_AND_ASSIGN(const Description description, store_->Describe(Soon()));
  EXPECT_EQ(description.write_once, std::nullopt);
  EXPECT_EQ(description.object_lock, false);
  EXPECT_THAT(description.warnings.at(0), HasSubstr("may only read"));
}

TEST_F(S3StoreTest, CredentialsThatCannotBeReadStopTheCall) {
  AlwaysAnswer(200, "");
  S3StoreOptions options;
  options.endpoint = {.url = server_->url(), .bucket = "bucket"};
  ASSERT_OK_AND_ASSIGN(
      const auto store,
      S3Store::Open(clock_, sleeper_, options, []() -> absl::StatusOr<S3Credentials> {
        return absl::FailedPreconditionError("the file is too open");
      }));
  EXPECT_THAT(store->Stat("a", Soon()),
              StatusIs(absl::StatusCode::kFailedPrecondition, "the file is too open"));
  EXPECT_TRUE(server_->requests().empty());
}

}  // namespace
}  // namespace stores
