package main

import (
	"encoding/base64"
	"fmt"
	"strings"
)

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func (r *run) endpoints() {
	for _, path := range []string{"/health", "/health?serializable=true", "/health?exclude=NOSPACE", "/health?exclude=bogus", "/health?serializable=bogus",
		"/livez", "/livez?verbose", "/livez/serializable_read", "/livez/bogus", "/livez?exclude=serializable_read&verbose", "/livez?exclude=bogus",
		"/readyz", "/readyz/data_corruption", "/readyz/serializable_read", "/readyz/linearizable_read", "/readyz/non_learner", "/readyz/bogus",
		"/readyz?exclude=linearizable_read", "/version", "/version/", "/", "/bogus", "/members", "/v2/keys", "/v2/keys/x", "/v3", "/v3/", "/v3/bogus", "/v3/kv", "/v3/kv/range",
		"/v3beta/kv/range", "/debug/pprof/", "/debug/requests", "/debug/vars", "/health/", "/livez/", "/readyz/", "//health", "/./version"} {
		r.bothHTTP("http get "+path[1:], "GET", path, "", nil)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"} {
		for _, path := range []string{"/health", "/version", "/livez", "/readyz", "/readyz/non_learner", "/bogus", "/v3/bogus"} {
			r.bothHTTP("http "+method+" "+path[1:], method, path, "", nil)
		}
		if method != "POST" {
			r.bothHTTP("http "+method+" v3 kv range", method, "/v3/kv/range", "{}", nil)
		}
	}
	r.bothHTTP("http origin", "GET", "/version", "", map[string]string{"Origin": "http://example.com:80"})
	r.bothHTTP("http preflight", "OPTIONS", "/v3/kv/put", "", map[string]string{"Origin": "http://example.com:80", "Access-Control-Request-Method": "POST"})
}

// gateway makes the calls curl users make. Every unary route is called with an empty body, an empty object and a filled one.
func (r *run) gateway() {
	post := func(name, path, body string) { r.bothHTTP("gateway "+name, "POST", path, body, nil) }
	k, v := b64("gw/1"), b64("value")
	post("put", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s"}`, k, v))
	post("put with previous", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s","prev_kv":true}`, k, v))
	post("put with camel case", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s","prevKv":true}`, k, v))
	post("put with a number as string", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s","lease":"404"}`, k, v))
	post("put with a number", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s","lease":404}`, k, v))
	post("put with a float", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s","lease":4.0}`, k, v))
	post("put with a fraction", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s","lease":4.5}`, k, v))
	post("put with an exponent", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","lease":4e2}`, k))
	post("put with a word for a number", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","lease":"x"}`, k))
	post("put with a number for a flag", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","prev_kv":1}`, k))
	post("put with a null", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":null,"lease":null}`, k))
	post("put with unknown fields", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","bogus":{"a":[1,2,{"b":null}]},"x":"y"}`, k))
	post("range with a field twice", "/v3/kv/range", fmt.Sprintf(`{"key":"%s","key":"%s"}`, k, v))
	post("range with a field by both names", "/v3/kv/range", fmt.Sprintf(`{"key":"%s","keys_only":true,"keysOnly":true}`, k))
	post("put with URL-safe base64", "/v3/kv/put", `{"key":"_-8","value":"_-8="}`)
	post("put with unpadded base64", "/v3/kv/put", `{"key":"Z3c","value":"Z3c"}`)
	post("put with bad base64", "/v3/kv/put", `{"key":"@@@"}`)
	post("put with escapes", "/v3/kv/put", `{"ke\u0079":"Z3c","value":"Z\u0033c"}`)
	post("put with blanks", "/v3/kv/put", " \n\t{ \"key\" : \"Z3c\" } \n")
	post("put with more after it", "/v3/kv/put", `{"key":"Z3c"} {"key":"Z3c"}`)
	post("put with garbage after it", "/v3/kv/put", `{"key":"Z3c"} x`)
	bodies := map[string]string{"nothing": "", "blanks": "  ", "an object": "{}", "a list": "[]", "a number": "1", "a null": "null", "a string": `"x"`, "cut": `{"key":`,
		"cut key": `{"key`, "trailing comma": `{"key":"Z3c",}`, "no quotes": `{key:1}`, "single quotes": `{'key':'Z3c'}`, "garbage": "hello", "form": "key=Z3c&value=Z3c"}
	for _, name := range sortedKeys(bodies) {
		body := bodies[name]
		post("put of "+name, "/v3/kv/put", body)
		post("range of "+name, "/v3/kv/range", body)
	}
	for _, body := range []string{`{"key":"%s"}`, `{"key":"%s","serializable":true}`, `{"key":"AA==","range_end":"AA==","limit":3}`, `{"key":"AA==","rangeEnd":"AA==","limit":"3"}`,
		`{"key":"%s","revision":"99999999"}`, `{"key":"%s","revision":-1}`, `{"key":"AA==","range_end":"AA==","sort_order":"DESCEND","sort_target":"KEY","limit":4}`,
		`{"key":"AA==","range_end":"AA==","sort_order":2,"sort_target":0,"limit":4}`, `{"key":"%s","sort_order":"BOGUS"}`, `{"key":"%s","sort_order":9}`, `{"key":"%s","sort_order":"2"}`,
		`{"key":"AA==","range_end":"AA==","count_only":true}`, `{"key":"AA==","range_end":"AA==","keys_only":true,"limit":2}`, `{"key":"AA==","range_end":"AA==","max_mod_revision":"5"}`,
		`{"key":"%s","limit":"9223372036854775808"}`, `{"key":"%s","limit":9223372036854775807}`} {
		text := body
		if strings.Contains(body, "%s") {
			text = fmt.Sprintf(body, k)
		}
		post("range "+strings.ReplaceAll(body, "/", "|"), "/v3/kv/range", text)
	}
	txn := fmt.Sprintf(`{"compare":[{"key":"%s","target":"VALUE","value":"%s","result":"EQUAL"}],"success":[{"request_put":{"key":"%s","value":"dw==","prev_kv":true}},{"requestRange":{"key":"%s"}},
		{"request_txn":{"success":[{"request_delete_range":{"key":"Z3c","prev_kv":true}}]}}],"failure":[{"request_range":{"key":"%s"}}]}`, k, v, k, k, k)
	post("txn", "/v3/kv/txn", txn)
	post("txn again", "/v3/kv/txn", txn)
	post("txn by number", "/v3/kv/txn", fmt.Sprintf(`{"compare":[{"key":"%s","target":0,"version":"1","result":1}],"success":[{"request_range":{"key":"%s"}}]}`, k, k))
	post("txn with a lease compare", "/v3/kv/txn", fmt.Sprintf(`{"compare":[{"key":"%s","target":"LEASE","lease":"0"}]}`, k))
	post("txn with two members of a oneof", "/v3/kv/txn", fmt.Sprintf(`{"success":[{"request_range":{"key":"%s"},"request_put":{"key":"%s"}}]}`, k, k))
	post("txn with an empty op", "/v3/kv/txn", `{"success":[{}]}`)
	post("txn with a null op", "/v3/kv/txn", `{"success":[null]}`)
	post("txn with a wrong list", "/v3/kv/txn", `{"success":{}}`)
	post("delete", "/v3/kv/deleterange", fmt.Sprintf(`{"key":"%s","prev_kv":true}`, k))
	post("delete again", "/v3/kv/deleterange", fmt.Sprintf(`{"key":"%s","prev_kv":true}`, k))
	post("compaction ahead", "/v3/kv/compaction", `{"revision":"99999999"}`)
	post("grant", "/v3/lease/grant", `{"TTL":"500","ID":"6001"}`)
	post("grant again", "/v3/lease/grant", `{"TTL":500,"ID":6001}`)
	post("put with a lease", "/v3/kv/put", fmt.Sprintf(`{"key":"%s","value":"%s","lease":"6001"}`, k, v))
	post("time to live", "/v3/lease/timetolive", `{"ID":"6001","keys":true}`)
	post("time to live, other route", "/v3/kv/lease/timetolive", `{"ID":"404","keys":true}`)
	post("leases", "/v3/lease/leases", `{}`)
	post("leases, other route", "/v3/kv/lease/leases", ``)
	post("keep alive", "/v3/lease/keepalive", `{"ID":"6001"}{"ID":404}`)
	post("keep alive of a number", "/v3/lease/keepalive", `{"ID":6001}`)
	post("revoke", "/v3/lease/revoke", `{"ID":"6001"}`)
	post("revoke, other route", "/v3/kv/lease/revoke", `{"ID":"6001"}`)
	post("member list", "/v3/cluster/member/list", `{"linearizable":true}`)
	post("member add without URL", "/v3/cluster/member/add", `{}`)
	post("member remove unknown", "/v3/cluster/member/remove", `{"ID":"404"}`)
	post("member update unknown", "/v3/cluster/member/update", `{"ID":"404","peerURLs":["http://127.0.0.1:9"]}`)
	post("status", "/v3/maintenance/status", ``)
	post("alarm", "/v3/maintenance/alarm", `{"action":"GET"}`)
	post("alarm on", "/v3/maintenance/alarm", `{"action":"ACTIVATE","memberID":"77","alarm":"NOSPACE"}`)
	post("put without space", "/v3/kv/put", fmt.Sprintf(`{"key":"%s"}`, k))
	post("alarm off", "/v3/maintenance/alarm", `{"action":"DEACTIVATE","memberID":77,"alarm":1}`)
	post("hash of keys", "/v3/maintenance/hashkv", `{"revision":"100"}`)
	post("hash of keys ahead", "/v3/maintenance/hashkv", `{"revision":"99999999"}`)
	post("hash", "/v3/maintenance/hash", `{}`)
	post("defragment", "/v3/maintenance/defragment", `{}`)
	post("other prefix", "/v3beta/kv/range", fmt.Sprintf(`{"key":"%s"}`, k))
	post("slash at the end", "/v3/kv/range/", fmt.Sprintf(`{"key":"%s"}`, k))
	post("no such route", "/v3/kv/rangestream", "{}")
	with := func(name string, headers map[string]string) {
		r.bothHTTP("gateway "+name, "POST", "/v3/kv/range", fmt.Sprintf(`{"key":"%s"}`, k), headers)
	}
	with("type form", map[string]string{"Content-Type": "application/x-www-form-urlencoded"})
	with("type json", map[string]string{"Content-Type": "application/json"})
	with("a token while auth is off", map[string]string{"Authorization": "bogus"})
	with("has leader", map[string]string{"Grpc-Metadata-Hasleader": "true"})
	with("timeout", map[string]string{"Grpc-Timeout": "5S"})
	with("bad timeout", map[string]string{"Grpc-Timeout": "soon"})
}

// metrics compares which families there are, of which type and with which labels; their values are each server's own.
func (r *run) metrics() {
	families := func(s *side) map[string]string {
		answer, err := s.http("GET", "/metrics", "", nil)
		if err != nil || answer.status != 200 {
			r.broken("metrics of "+s.name, fmt.Errorf("status %d: %w", answer.status, err))
			return nil
		}
		found := map[string]string{}
		for _, line := range strings.Split(answer.body, "\n") {
			if words := strings.Fields(line); len(words) == 4 && words[1] == "TYPE" {
				found[words[2]] = words[3]
			}
		}
		return found
	}
	ours := families(r.engram)
	for name, kind := range families(r.etcd) {
		if strings.HasPrefix(name, "go_") || r.rules.find("metric", name) != nil {
			continue
		}
		if ours[name] != kind {
			r.broken("metric "+name, fmt.Errorf("etcd has it as a %s, engram: %q", kind, ours[name]))
		} else {
			r.passed++
		}
	}
}
