"""Takes the Python gRPC client through keys, transactions, leases and watches
on the endpoint given as argument, and prints "ok" only if every answer was
right."""

import os
import time

import etcd3

from common import check, endpoint


def keys(c, prefix):
    a = prefix + "a"
    first = c.put(a, "1").header.revision
    value, meta = c.get(a)
    check(value == b"1" and meta.key == a.encode(), "key and value", (value, meta.key))
    check((meta.create_revision, meta.mod_revision, meta.version) == (first, first, 1), "revisions of a new key",
          (meta.create_revision, meta.mod_revision, meta.version))
    second = c.put(a, "2", prev_kv=True)
    check(second.header.revision == first + 1, "revision after a second put", second.header)
    check(second.prev_kv.value == b"1", "previous value", second.prev_kv)
    _, meta = c.get(a, serializable=True)
    check((meta.create_revision, meta.mod_revision, meta.version) == (first, first + 1, 2), "revisions of a changed key",
          (meta.create_revision, meta.mod_revision, meta.version))

    for name in "bcd":
        c.put(prefix + name, name)
    page = [(m.key, v) for v, m in c.get_prefix(prefix, sort_order="descend")]
    check(page == [((prefix + n).encode(), v) for n, v in (("d", b"d"), ("c", b"c"), ("b", b"b"), ("a", b"2"))],
          "descending order", page)
    bare = [v for v, _ in c.get_prefix(prefix, keys_only=True)]
    check(bare == [b""] * 4, "keys only", bare)
    ranged = [v for v, _ in c.get_range(prefix + "b", prefix + "d")]
    check(ranged == [b"b", b"c"], "range", ranged)

    deleted = c.delete(prefix + "b", prev_kv=True, return_response=True)
    check(deleted.deleted == 1 and deleted.prev_kvs[0].value == b"b", "deleted key", deleted)
    check(c.delete(prefix + "b") is False, "a deleted key was deleted again", None)
    check(c.get(prefix + "b") == (None, None), "a deleted key is still there", None)
    check(c.delete_prefix(prefix).deleted == 3, "deleted prefix", None)


def transactions(c, prefix):
    a, b = prefix + "a", prefix + "b"
    t = c.transactions
    before = c.put(a, "1").header.revision
    done, answers = c.transaction(
        compare=[t.value(a) == "1", t.mod(a) == before, t.version(b) == 0],
        success=[t.put(a, "2"), t.put(b, "3"), t.get(prefix, prefix + "z")],
        failure=[t.get(a)])
    check(done and len(answers) == 3, "true comparison", answers)
    seen = [(v, m.mod_revision) for v, m in answers[2]]
    check(seen == [(b"2", before + 1), (b"3", before + 1)], "a read must see the writes before it", seen)
    done, answers = c.transaction(compare=[t.create(a) == 0], success=[t.delete(a)], failure=[t.get(a)])
    check(not done and answers[0][0][0] == b"2", "false comparison", answers)
    check(c.put_if_not_exists(a, "x") is False and c.put_if_not_exists(prefix + "new", "x") is True, "put if absent", None)
    check(c.replace(a, "2", "4") is True and c.replace(a, "2", "5") is False, "compare and swap", None)


def leases(c, prefix):
    long = c.lease(60)
    check(long.ttl == 60 and long.id != 0, "granted lease", (long.id, long.ttl))
    c.put(prefix + "long", "x", lease=long)
    check(c.get(prefix + "long")[1].lease_id == long.id, "lease of a key", None)
    left = c.get_lease_info(long.id)
    check(left.grantedTTL == 60 and 50 < left.TTL <= 60, "time to live", left)
    check(list(left.keys) == [(prefix + "long").encode()], "keys of a lease", left)
    renewed = long.refresh()
    check(len(renewed) == 1 and renewed[0].TTL == 60, "keep alive", renewed)
    long.revoke()
    check(c.get(prefix + "long") == (None, None), "a revoked lease left its key", None)
    check(c.get_lease_info(long.id).TTL == -1, "a revoked lease still lives", None)

    # The server may lengthen a short lease, so its answer is the measure.
    short = c.lease(1)
    put = c.put(prefix + "short", "x", lease=short)
    granted = time.monotonic()
    events, cancel = c.watch(prefix + "short", start_revision=put.header.revision + 1)
    check(c.get(prefix + "short")[0] == b"x", "a key with a live lease is absent", None)
    event = next(events)
    lived = time.monotonic() - granted
    check(isinstance(event, etcd3.events.DeleteEvent), "expiry", event)
    check(lived > short.ttl - 0.5, "seconds until the lease expired", lived)
    cancel()


def watches(c, prefix):
    live, cancel_live = c.watch_prefix(prefix, prev_kv=True)
    first = c.put(prefix + "a", "1").header.revision
    c.put(prefix + "a", "2")
    c.delete(prefix + "a")
    t = c.transactions
    c.transaction(compare=[], success=[t.put(prefix + "b", "3"), t.put(prefix + "c", "4")], failure=[])
    wanted = [
        ("PutEvent", "a", b"1", b"", first),
        ("PutEvent", "a", b"2", b"1", first + 1),
        ("DeleteEvent", "a", b"", b"2", first + 2),
        ("PutEvent", "b", b"3", b"", first + 3),
        ("PutEvent", "c", b"4", b"", first + 3),
    ]
    # The same changes must come from a watch that was there and from one that
    # starts in the past.
    past, cancel_past = c.watch_prefix(prefix, prev_kv=True, start_revision=first)
    for name, events in (("live", live), ("past", past)):
        for one in wanted:
            event = next(events)
            seen = (type(event).__name__, event.key.decode()[len(prefix):], event.value, event.prev_value,
                    event.mod_revision)
            check(seen == one, f"{name} watch, instead of {one}", seen)
    cancel_live()
    cancel_past()


def main():
    host, port = endpoint()
    client = etcd3.client(host=host, port=port, timeout=30)
    prefix = f"/interop/python/{time.time_ns()}/"
    keys(client, prefix + "kv/")
    transactions(client, prefix + "txn/")
    leases(client, prefix + "lease/")
    watches(client, prefix + "watch/")
    client.delete_prefix(prefix)
    print("ok", flush=True)
    # The client's watch thread does not end by itself.
    os._exit(0)


if __name__ == "__main__":
    main()
