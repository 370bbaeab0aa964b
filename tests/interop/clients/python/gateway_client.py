"""Takes the Python client of the JSON gateway through keys, transactions,
leases and watches on the endpoint given as argument, and prints "ok" only if
every answer was right."""

import base64
import os
import time

import etcd3gw

from common import check, endpoint


def coded(text):
    return base64.b64encode(text.encode()).decode()


def meta_of(client, key, **kwargs):
    [(value, meta)] = client.get(key, metadata=True, **kwargs)
    return value, int(meta["create_revision"]), int(meta["mod_revision"]), int(meta["version"])


def keys(c, prefix):
    a = prefix + "a"
    check(c.put(a, "1") is True, "put", None)
    value, first, modified, version = meta_of(c, a)
    check(value == b"1" and modified == first and version == 1, "a new key", (value, first, modified, version))
    c.put(a, "2")
    seen = meta_of(c, a)
    check(seen == (b"2", first, first + 1, 2), "a changed key", seen)
    check(meta_of(c, a, revision=first) == (b"1", first, first, 1), "value of an earlier revision", None)
    for name in "bcd":
        c.put(prefix + name, name)
    page = [(m["key"], v) for v, m in c.get(prefix, metadata=True, range_end=prefix + "z", limit=2,
                                            sort_order="descend", sort_target="key")]
    check(page == [((prefix + "d").encode(), b"d"), ((prefix + "c").encode(), b"c")], "descending page", page)
    bare = c.get(prefix, range_end=prefix + "z", keys_only=True)
    check(bare == [b""] * 4, "keys only", bare)
    check(c.delete(prefix + "b") is True and c.delete(prefix + "b") is False, "delete", None)
    check(c.get(prefix + "b") == [], "a deleted key is still there", None)
    check(c.delete_prefix(prefix) is True and c.get_prefix(prefix) == [], "delete of a prefix", None)


def transactions(c, prefix):
    a, b = prefix + "a", prefix + "b"
    c.put(a, "1")
    before = meta_of(c, a)[2]
    done = c.transaction({
        "compare": [{"key": coded(a), "result": "EQUAL", "target": "VALUE", "value": coded("1")},
                    {"key": coded(b), "result": "EQUAL", "target": "VERSION", "version": 0}],
        "success": [{"request_put": {"key": coded(a), "value": coded("2")}},
                    {"request_put": {"key": coded(b), "value": coded("3")}},
                    {"request_range": {"key": coded(prefix), "range_end": coded(prefix + "z")}}],
        "failure": [{"request_range": {"key": coded(a)}}]})
    check(done.get("succeeded") is True and len(done["responses"]) == 3, "true comparison", done)
    check(done["header"]["revision"] == str(before + 1), "a transaction must be one revision", done)
    seen = [(kv["value"], kv["mod_revision"]) for kv in done["responses"][2]["response_range"]["kvs"]]
    check(seen == [(coded("2"), str(before + 1)), (coded("3"), str(before + 1))],
          "a read must see the writes before it", seen)
    done = c.transaction({
        "compare": [{"key": coded(a), "result": "EQUAL", "target": "CREATE", "create_revision": 0}],
        "success": [{"request_delete_range": {"key": coded(a)}}],
        "failure": [{"request_range": {"key": coded(a)}}]})
    check("succeeded" not in done, "false comparison", done)
    check(done["responses"][0]["response_range"]["kvs"][0]["value"] == coded("2"), "else branch", done)
    check(c.create(a, "x") is False and c.create(prefix + "new", "x") is True, "put if absent", None)
    check(c.replace(a, "2", "4") is True and c.replace(a, "2", "5") is False, "compare and swap", None)


def leases(c, prefix):
    long = c.lease(60)
    check(long.id != 0 and 50 < long.ttl() <= 60, "granted lease", long.id)
    c.put(prefix + "long", "x", lease=long)
    [(_, meta)] = c.get(prefix + "long", metadata=True)
    check(int(meta["lease"]) == long.id, "lease of a key", meta)
    check(long.keys() == [(prefix + "long").encode()], "keys of a lease", None)
    check(long.refresh() == 60, "keep alive", None)
    long.revoke()
    check(c.get(prefix + "long") == [], "a revoked lease left its key", None)
    check(long.ttl() == -1, "a revoked lease still lives", None)

    short = c.lease(1)
    c.put(prefix + "short", "x", lease=short)
    granted = time.monotonic()
    put = meta_of(c, prefix + "short")[2]
    events, cancel = c.watch(prefix + "short", start_revision=put + 1)
    event = next(events)
    lived = time.monotonic() - granted
    check(event.get("type") == "DELETE", "expiry", event)
    check(lived > 0.5, "seconds until the lease expired", lived)
    check(c.get(prefix + "short") == [], "an expired key is still there", None)
    cancel()


def watches(c, prefix):
    events, cancel = c.watch_prefix(prefix, prev_kv=True)

    # This client reads one message a chunk, so each change waits for its event.
    def after(change):
        change()
        event = next(events)
        return (event.get("type", "PUT"), event["kv"]["key"].decode()[len(prefix):], event["kv"].get("value", b""),
                event.get("prev_kv", {}).get("value", ""), int(event["kv"]["mod_revision"]))

    a = prefix + "a"
    seen = after(lambda: c.put(a, "1"))
    first = seen[4]
    check(seen == ("PUT", "a", b"1", "", first), "first event", seen)
    seen = after(lambda: c.put(a, "2"))
    check(seen == ("PUT", "a", b"2", coded("1"), first + 1), "second event", seen)
    seen = after(lambda: c.delete(a))
    check(seen == ("DELETE", "a", b"", coded("2"), first + 2), "third event", seen)
    cancel()

    past, cancel = c.watch(a, start_revision=first + 2, prev_kv=True)
    event = next(past)
    check(event.get("type") == "DELETE" and int(event["kv"]["mod_revision"]) == first + 2, "past event", event)
    cancel()


def main():
    host, port = endpoint()
    client = etcd3gw.client(host=host, port=port, timeout=30)
    prefix = f"/interop/gateway/{time.time_ns()}/"
    keys(client, prefix + "kv/")
    transactions(client, prefix + "txn/")
    leases(client, prefix + "lease/")
    watches(client, prefix + "watch/")
    client.delete_prefix(prefix)
    print("ok", flush=True)
    # A watch thread may still wait for an answer that nobody needs.
    os._exit(0)


if __name__ == "__main__":
    main()
