#include "net/http1_response.h"

#include "base/testing.h"

namespace net {
namespace {

struct Read {
  absl::Status status;
  std::string body;
  size_t taken = 0;
  Http1Response response;
};

Read ReadAll(std::string_view bytes, size_t piece) {
  Read read;
  for (size_t at = 0; at < bytes.size() && !read.response.done(); at += piece) {
    const auto taken = read.response.Feed(bytes.substr(at, piece),
                                          [&](std::string_view more) { read.body += more; });
    if (!taken.ok()) {
      read.status = taken.status();
      return read;
    }
    read.taken += *taken;
  }
  return read;
}

TEST(Http1ResponseTest, BodiesOfEveryFramingComeOutHoweverTheyAreCut) {
  const std::string with_length =
      "HTTP/1.1 200 OK\r\nX-Server-Version: 3.7.3\r\nContent-Length: 5\r\n\r\nhello";
  const std::string chunked =
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
      "x-server-version: 3.7.3\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nTrailer: t\r\n\r\n";
  for (const std::string& bytes : {with_length, chunked}) {
    for (size_t piece = 1; piece <= bytes.size(); ++piece) {
      const Read read = ReadAll(bytes + "next", piece);
      EXPECT_OK(read.status);
      EXPECT_TRUE(read.response.done() && read.response.keep_alive());
      EXPECT_EQ(read.body, "hello");
      EXPECT_EQ(read.taken, bytes.size());
      EXPECT_EQ(read.response.head().status, 200);
      EXPECT_EQ(read.response.head().header("X-SERVER-VERSION"), "3.7.3");
    }
  }
}

TEST(Http1ResponseTest, ABodyWithoutLengthEndsWithTheConnection) {
  Read read = ReadAll("HTTP/1.0 500 Internal Server Error\r\n\r\nbad", 4);
  EXPECT_FALSE(read.response.done());
  EXPECT_OK(read.response.OnEof());
  EXPECT_TRUE(read.response.done());
  EXPECT_FALSE(read.response.keep_alive());
  EXPECT_EQ(read.body, "bad");
}

TEST(Http1ResponseTest, ACutResponseIsNoResponse) {
  const std::string bytes =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n\r\n";
  for (size_t n = 0; n < bytes.size(); ++n) {
    Read read = ReadAll(std::string_view(bytes).substr(0, n), 3);
    EXPECT_OK(read.status);
    EXPECT_FALSE(read.response.done());
    EXPECT_THAT(read.response.OnEof(),
                base::StatusIs(absl::StatusCode::kUnavailable, n == 0 ? "EOF" : "unexpected EOF"));
  }
}

TEST(Http1ResponseTest, WhatCouldBeReadInTwoWaysIsRefused) {
  for (const char* bytes :
       {"HTTP/2 200 OK\r\n", "HTTP/1.1 2x0 OK\r\n", "HTTP/1.1 099 OK\r\n", "SSH-2.0-OpenSSH\r\n",
        "HTTP/1.1 200 OK\n", "HTTP/1.1 200 OK\r\n folded\r\n", "HTTP/1.1 200 OK\r\nA : b\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ReadAll(bytes, 1000).status)) << bytes;
    EXPECT_TRUE(absl::IsInvalidArgument(ReadAll(bytes, 1).status)) << bytes;
  }
}

TEST(Http1ResponseTest, HeadsHaveABound) {
  const std::string head = "HTTP/1.1 200 OK\r\nA: " + std::string(70 << 10, 'a') + "\r\n\r\n";
  EXPECT_TRUE(absl::IsInvalidArgument(ReadAll(head, 4096).status));
  std::string many = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 10000; ++i) many += "Name: value\r\n";
  EXPECT_TRUE(absl::IsInvalidArgument(ReadAll(many, 4096).status));
}

}  // namespace
}  // namespace net
