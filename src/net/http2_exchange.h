// A plain HTTP request on an HTTP/2 stream, as an HttpExchange. Loop thread only.
#pragma once

#include "net/http.h"
#include "net/http2.h"

namespace net {

// Makes the exchange for `stream`, puts it into *consumer, then hands it to `handler`.
void StartHttp2Exchange(Http2Stream& stream, HttpHandler& handler, StreamConsumer** consumer);

}  // namespace net
