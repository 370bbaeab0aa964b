// What servers say: whole, cut off, flipped, too long, too deep.
#include "stores/s3_answers.h"

#include "base/testing.h"
#include "stores/s3_credentials.h"
#include "stores/xml.h"

namespace stores {
namespace {

using base::StatusIs;
using testing::HasSubstr;
using testing::Not;

constexpr char kListing[] =
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
    "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>"
    "<IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b=</NextContinuationToken>"
    "<!-- two of them -->"
    "<Contents><Key>p/a&lt;b</Key><Size>12</Size><ETag>&quot;x&#34;</ETag></Contents>"
    "<Contents>\n  <Key>p/c</Key>\n  <Size>0</Size>\n  <Owner/>\n</Contents></ListBucketResult>\n";

TEST(S3Listing, IsTakenApart) {
  ASSERT_OK_AND_ASSIGN(const S3Listing listing, ParseS3Listing(kListing));
  ASSERT_EQ(listing.objects.size(), 2U);
  EXPECT_EQ(listing.objects[0].key, "p/a<b");
  EXPECT_EQ(listing.objects[0].bytes, 12U);
  EXPECT_EQ(listing.objects[1].key, "p/c");
  EXPECT_TRUE(listing.truncated);
  EXPECT_EQ(listing.next, "a&b=");
}

TEST(S3Listing, CutOffAnywhereIsAnError) {
  const std::string text = std::string(kListing).substr(0, sizeof kListing - 2);
  ASSERT_OK(ParseS3Listing(text).status());
  for (size_t n = 0; n < text.size(); ++n) {
    EXPECT_THAT(ParseS3Listing(text.substr(0, n)), StatusIs(absl::StatusCode::kInternal)) << n;
  }
}

TEST(S3Listing, AFlippedByteIsAnErrorOrAnotherList) {
  int refused = 0;
  for (size_t i = 0; i + 1 < sizeof kListing; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string text = kListing;
      text[i] = static_cast<char>(text[i] ^ 1 << bit);
      const auto listing = ParseS3Listing(text);
      if (listing.ok()) {
        EXPECT_LE(listing->objects.size(), 2U);
      } else {
        EXPECT_THAT(listing, StatusIs(absl::StatusCode::kInternal, Not(HasSubstr("\n"))));
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1'000);
}

TEST(S3Listing, WhatIsMissingIsNotGuessed) {
  const auto inside = [](const std::string& text) {
    return ParseS3Listing("<ListBucketResult>" + text + "</ListBucketResult>").status();
  };
  EXPECT_OK(inside(""));
  for (const char* bad :
       {"<Contents><Key>a</Key></Contents>", "<Contents><Size>1</Size></Contents>",
        "<Contents><Key>a</Key><Size>-1</Size></Contents>",
        "<Contents><Key>a</Key><Size>1x</Size></Contents>",
        "<Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>",
        "<IsTruncated>true</IsTruncated>", "<IsTruncated>yes</IsTruncated>"}) {
    EXPECT_THAT(inside(bad), StatusIs(absl::StatusCode::kInternal)) << bad;
  }
  EXPECT_THAT(
      inside("<Contents><Key>" + std::string(5'000, 'k') + "</Key><Size>1</Size></Contents>"),
      StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(ParseS3Listing("<Error><Code>X</Code></Error>"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("<Error>")));
}

TEST(S3Error, IsShortenedToOneLine) {
  const S3Error error = ParseS3Error(
      "<Error><Code>NoSuchKey</Code><Message>one\ntwo &#233;</Message><RequestId>r1</RequestId>"
      "<Region>eu-west-1</Region><HostId>h</HostId></Error>");
  EXPECT_EQ(error.code, "NoSuchKey");
  EXPECT_EQ(error.message, "one two   ");
  EXPECT_EQ(error.request_id, "r1");
  EXPECT_EQ(error.region, "eu-west-1");
  EXPECT_EQ(ParseS3Error("<Error><Message>" + std::string(5'000, 'm') + "</Message></Error>")
                .message.size(),
            300U);
  for (const char* other : {"", "<html><body>502</body></html>", "<Error>", "not XML"}) {
    EXPECT_EQ(ParseS3Error(other).code, "") << other;
  }
}

TEST(S3Uploads, AreTakenApart) {
  ASSERT_OK_AND_ASSIGN(
      const S3Uploads uploads,
      ParseS3Uploads("<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
                     "<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>i</NextUploadIdMarker>"
                     "<Upload><Key>a</Key><UploadId>u</UploadId>"
                     "<Initiated>1970-01-02T00:00:01.500Z</Initiated></Upload>"
                     "</ListMultipartUploadsResult>"));
  ASSERT_EQ(uploads.uploads.size(), 1U);
  EXPECT_EQ(uploads.uploads[0].initiated, std::chrono::seconds(86'401));
  EXPECT_EQ(uploads.next_key, "k");
  EXPECT_EQ(uploads.next_id, "i");
  EXPECT_FALSE(ParseS3Uploads("<ListMultipartUploadsResult><Upload><Key>a</Key></Upload>"
                              "</ListMultipartUploadsResult>")
                   .ok());
}

TEST(S3Bucket, AnswersOfOneWord) {
  EXPECT_EQ(ParseS3Versioning("<VersioningConfiguration/>").value(), false);
  EXPECT_EQ(ParseS3Versioning(
                "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
                .value(),
            true);
  EXPECT_EQ(ParseS3ObjectLock("<ObjectLockConfiguration><ObjectLockEnabled>Enabled"
                              "</ObjectLockEnabled></ObjectLockConfiguration>")
                .value(),
            true);
  EXPECT_TRUE(IsS3Error("<Error/>"));
  EXPECT_FALSE(IsS3Error("<CompleteMultipartUploadResult/>"));
  EXPECT_FALSE(ParseS3UploadId("<InitiateMultipartUploadResult/>").ok());
}

TEST(S3ContentRange, TakesOneForm) {
  const auto range = ParseS3ContentRange("bytes 5-9/100");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, 5U);
  EXPECT_EQ(range->last, 9U);
  EXPECT_EQ(range->total, 100U);
  for (const char* bad : {"", "bytes */100", "bytes 5-4/100", "bytes 5-100/100", "bytes 5-9/*",
                          "5-9/100", "bytes 5-9", "bytes -5-9/100", "bytes 5/9-100"}) {
    EXPECT_FALSE(ParseS3ContentRange(bad).has_value()) << bad;
  }
}

TEST(S3Time, TakesOneForm) {
  EXPECT_EQ(ParseS3Time("2026-12-01T02:03:04Z"), std::chrono::seconds(1'796'090'584));
  EXPECT_EQ(ParseS3Time("2026-12-01T02:03:04.123456Z"), std::chrono::seconds(1'796'090'584));
  for (const char* bad :
       {"", "2026-12-01", "2026-12-01T02:03:04", "2026-13-01T02:03:04Z", "2026-02-30T02:03:04Z",
        "2026-12-01T24:03:04Z", "2026-12-01T02:03:04.Z", "2026-12-01 02:03:04Z",
        "9999-12-01T02:03:04Z", "2026-12-01T02:03:04+01:00", "x026-12-01T02:03:04Z"}) {
    EXPECT_FALSE(ParseS3Time(bad).has_value()) << bad;
  }
}

TEST(Xml, RefusesWhatItDoesNotKnow) {
  for (const char* bad : {"",
                          "text",
                          "<a>",
                          "<a></b>",
                          "<a",
                          "<a b></a>",
                          "<a b=c></a>",
                          "<a b=\"c></a>",
                          "<a/><b/>",
                          "<a>&unknown;</a>",
                          "<a>&#0;</a>",
                          "<a>&#x110000;</a>",
                          "<a>&#xd800;</a>",
                          "<a>&#12</a>",
                          "<a>&#;</a>",
                          "<!DOCTYPE a><a/>",
                          "<a><![CDATA[x]]></a>",
                          "<a><?x?></a>",
                          "<a><!-- x</a>",
                          "<></>",
                          "< a/>",
                          "<a>x</a>y"}) {
    EXPECT_THAT(ParseXml(bad), StatusIs(absl::StatusCode::kInvalidArgument)) << bad;
  }
  ASSERT_OK_AND_ASSIGN(const XmlElement root,
                       ParseXml("\xef\xbb\xbf<?xml version='1.0'?><!-- c --><a x = 'y' >"
                                " t&#x20ac;&#233;&#x1F600; <b/></a > "));
  EXPECT_EQ(root.text, "t\xe2\x82\xac\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_NE(root.Child("b"), nullptr);
  EXPECT_EQ(root.Child("c"), nullptr);
}

TEST(Xml, IsBounded) {
  std::string deep;
  for (size_t i = 0; i <= kXmlDepthMax; ++i) deep += "<a>";
  EXPECT_THAT(ParseXml(deep),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too deeply")));
  std::string wide = "<a>";
  for (size_t i = 0; i < kXmlElementsMax; ++i) wide += "<b/>";
  EXPECT_THAT(ParseXml(wide + "</a>"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too many")));
}

TEST(Xml, EscapedTextComesBack) {
  const std::string text = "a<b>&\"c'";
  ASSERT_OK_AND_ASSIGN(const XmlElement root, ParseXml("<a>" + EscapeXml(text) + "</a>"));
  EXPECT_EQ(root.text, text);
}

TEST(S3Credentials, AreLinesOfNamesAndValues) {
  ASSERT_OK_AND_ASSIGN(const S3Credentials credentials,
                       ParseS3Credentials("# for backups\n[default]\r\n"
                                          "aws_access_key_id = AK\naws_secret_access_key=s3/c=ret\n"
                                          "session_token = t\n"));
  EXPECT_EQ(credentials.access_key, "AK");
  EXPECT_EQ(credentials.secret_key.view(), "s3/c=ret");
  EXPECT_EQ(credentials.session_token.view(), "t");
  for (const char* bad : {"", "access_key = AK", "secret_key = hunter2",
                          "access_key = AK\nsecret_key = hunter2\nregion = x",
                          "access_key = AK\nsecret_key =", "access_key = AK\nhunter2",
                          "access_key = AK\nsecret_key = hunter2\n[other]",
                          "access_key = AK\nsecret_key = hunter2 \x01z"}) {
    EXPECT_THAT(ParseS3Credentials(bad),
                StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("hunter2"))))
        << bad;
  }
}

TEST(S3Credentials, ComeFromAFileThatIsReadAnew) {
  base::ScratchDirectory scratch;
  const std::string path = scratch / "s3";
  S3CredentialsSource source = S3CredentialsFromFile(base::PosixFiles(), path);
  EXPECT_THAT(source(), StatusIs(absl::StatusCode::kNotFound));
  for (const char* key : {"one", "two"}) {
    ASSERT_OK(base::WriteFileAtomically(base::PosixFiles(), path,
                                        fmt::format("access_key={}\nsecret_key=s\n", key), 0600));
    EXPECT_EQ(source().value().access_key, key);
  }
  ASSERT_OK(base::WriteFileAtomically(base::PosixFiles(), path, "access_key=a", 0600));
  EXPECT_THAT(source(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path)));
}

}  // namespace
}  // namespace stores
