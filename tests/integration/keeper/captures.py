"""Fulls alone, holes, leases, the bumped revision, suspicion."""
import http.server
import threading
import time

from rig import ALL, DAMAGED, HOLE, OK, UNPROVEN, UNREACHABLE, UNSAFE, FastLoad, Load, b64, check_restored, compare, rig, rng, scenario, wait_for


@scenario(quick=("engram", "etcd"))
def fulls_alone_restore_any_revision_of_their_windows(kind):
    """No archive at all: three fulls, each of which holds every revision since the compaction before it."""
    with rig(kind, segment=0) as r:
        load = Load(r.member, "load", compactions=False)
        for part in range(1, 4):
            load.until(part * 120)
            full = r.keeper.json("backup")
            r.client.compact(full["revision"] - 20)  # overlaps the next full
        load.finish()
        r.keeper.ok("backup")  # whatever the load's pace was, what it recorded lies in a full
        windows = r.keeper.living()["windows"]
        assert len(windows) == 1 and not r.keeper.living()["holes"], windows
        window = windows[0]
        known = [n for n in load.records if window["first_revision"] <= n <= window["last_revision"]]
        assert len(known) > 10, (window, sorted(load.records))
        tried = rng("revisions").sample(known, 15 if ALL else 3)
        for revision in tried:
            folder, report = r.keeper.restore(revision, f"at-{revision}", "--no-bump")
            assert report["rows_replayed"] == 0 and report["revision"] == revision, report
            check_restored(r, load, revision, folder)
        gone = r.keeper.fails(HOLE, "restore", "--to", str(window["last_revision"] + 1000), "--data-dir", str(r.folder / "x"))
        assert "newer than all that was seen" in gone.err, gone
        return f"window {window['first_revision']}–{window['last_revision']}, {len(tried)} revisions equal"


@scenario(quick=("engram", "etcd"))
def r63_a_compaction_that_overtakes_a_stopped_keeper_is_a_hole(kind):
    with rig(kind) as r:
        load = Load(r.member, "before", compactions=False).until(60).finish()
        r.keeper.start()
        after_start = r.client.put("/registry/a", "1")
        r.keeper.archived(after_start)
        r.keeper.stop()
        kept = r.client.state()
        for i in range(300):
            last = r.client.put(f"/registry/unseen/{i % 20}", str(i))
        compacted = last - 50
        r.client.compact(compacted)
        later = r.client.state()
        r.keeper.start()
        final = r.client.put("/registry/b", "2")
        r.keeper.archived(final)
        wait_for("the hole", lambda: r.keeper.metric("holes_total") == 1)
        living = r.keeper.living()
        assert [(h["first_revision"], h["last_revision"]) for h in living["holes"]] == [(after_start + 1, compacted - 1)], living
        inside = r.keeper.fails(HOLE, "restore", "--to", str(after_start + 100), "--data-dir", str(r.folder / "hole"))
        assert "hole" in inside.err and str(after_start) in inside.err and str(compacted) in inside.err, inside
        assert not (r.folder / "hole").exists()
        load.records[kept[0]], load.records[later[0]] = kept[1], later[1]
        for revision in (kept[0], later[0]):
            folder, _ = r.keeper.restore(revision, f"at-{revision}", "--no-bump")
            check_restored(r, load, revision, folder)
        r.keeper.stop()
        assert len(r.keeper.living()["holes"]) == 1, "a hole is shown for ever"
        return f"hole {after_start + 1}–{compacted - 1}"


@scenario()
def a_full_that_overlaps_closes_a_hole_of_the_archive(kind):
    """The keeper stood still, but what it missed was not compacted away when a full was taken."""
    with rig(kind) as r:
        r.keeper.start()
        r.keeper.archived(r.client.put("/a", "1"))
        r.keeper.kill()
        load = Load(r.member, "unseen", compactions=False).until(150).finish()
        newest = r.client.revision()
        r.keeper.ok("backup")
        r.client.compact(newest - 5)
        r.keeper.start()
        last = r.client.put("/b", "2")
        r.keeper.archived(last)
        living = r.keeper.living()
        assert not living["holes"] and len(living["windows"]) == 1, living
        assert living["windows"][0]["last_revision"] >= last, living
        known = [n for n in load.records if n <= newest]
        for revision in rng("revisions").sample(known, 2):
            folder, _ = r.keeper.restore(revision, f"at-{revision}", "--no-bump")
            check_restored(r, load, revision, folder)


@scenario()
def leases_survive_a_replay_and_shift_no_revision(kind):
    with rig(kind) as r:
        long, expiring = r.client.grant(5000, 0x1111), r.client.grant(2, 0x2222)
        r.client.put("/long", "l", long)
        r.client.put("/short", "s", expiring)
        r.keeper.start()  # the full holds both
        fresh = r.client.grant(6, 0x3333)
        r.client.put("/fresh", "f", fresh)
        wait_for("the lease to expire", lambda: "/short" not in r.client.state()[1])
        r.client.put("/last", "x")
        revision, state = r.client.state()
        r.keeper.archived(revision)
        folder, report = r.keeper.restore("latest", "restored", "--no-bump")
        assert report["revision"] == revision, report
        member = r.on(folder)
        started = time.monotonic()
        client = member.client()
        now, restored = client.state()
        assert now == revision, f"an expired lease shifted the revision: {revision} became {now}"
        compare(state, restored, "leased keys")
        assert restored["/long"][4] == long and restored["/fresh"][4] == fresh
        for lease, granted in ((long, 5000), (fresh, 6)):
            answer = client.call("/v3/lease/timetolive", {"ID": str(lease), "keys": True})
            assert int(answer["grantedTTL"]) == granted and len(answer["keys"]) == 1, answer
        wait_for("the key of a lease to expire in the restored cluster", lambda: "/fresh" not in client.state()[1], seconds=30)
        took = time.monotonic() - started
        assert 4 < took < 16, f"a lease of 6 s expired after {took:.1f} s"
        assert "/long" in client.state()[1]
        return f"a lease of 6 s expired {took:.1f} s after the start"


@scenario(quick=("engram", "etcd"))
def r51_old_watches_are_cancelled_after_a_restore(kind):
    """Without --no-bump no revision is ever given out twice."""
    with rig(kind) as r:
        r.keeper.start()
        load = Load(r.member, "load", compactions=False).until(60).finish()
        before, state = r.client.state()
        r.keeper.archived(before)
        folder, report = r.keeper.restore(before, "bumped")
        assert report["bumped_to"] >= before + 1_000_000, report
        member = r.on(folder)
        client = member.client()
        now, restored = client.state()
        assert now >= before + 1_000_000, now
        compare(state, restored, "after the bump")  # create and mod revisions stay those of before
        message = member.client().watch("/", before + 1, lambda m: m.get("canceled") or m.get("events"))
        assert message.get("canceled") and int(message.get("compact_revision", 0)) > before, message
        assert client.put("/new", "n") > before + 1_000_000
        # What --no-bump means: the same watch waits, and will see a revision that was given out before.
        folder, report = r.keeper.restore(before, "kept", "--no-bump")
        assert report["bumped_to"] == 0, report
        kept = r.on(folder)
        assert kept.client().put("/new", "n") == before + 1
        chosen = before + 5_000_000
        folder, report = r.keeper.restore(before, "chosen", "--bump-to", str(chosen))
        assert r.on(folder).client().revision() == chosen
        return f"{before} became {now}"


@scenario()
def an_emptied_cluster_is_suspect_and_nothing_is_pruned(kind):
    with rig(kind, segment=0, cluster_more="retention: {window: none, hourly: 1, daily: 1, weekly: 0, monthly: 0, keep_proven: 1}") as r:
        for i in range(200):
            r.client.put(f"/registry/pods/{i}", "p")
        for _ in range(3):
            r.client.put("/registry/tick", "t")
            r.keeper.ok("backup")
        would = r.keeper.json("prune")
        assert would, "three fulls of one hour: two of them could go"
        r.client.delete("/registry/", "/registry0")
        run = r.keeper.run("backup")
        assert run.code == UNPROVEN and "SUSPECT" in run.out and "/registry/" in run.out, run
        before = r.keeper.objects(kind="fulls")
        stopped = r.keeper.fails(UNSAFE, "prune", "--yes")
        assert "suspect" in stopped.err, stopped
        assert r.keeper.objects(kind="fulls") == before
        # The daemon is stopped by it as well, and says so.
        r.keeper.configure(cluster_more=r.keeper.cluster_more.replace("keep_proven: 1", "keep_proven: 1, every: 1m"))
        r.keeper.start()
        wait_for("retention to be stopped", lambda: r.keeper.metric("retention_ok") == 0)
        assert "suspect" in r.keeper.json("status")[0]["retention"]["stopped"]
        assert r.keeper.metric("pruned_objects_total") == 0
        r.keeper.stop()
        assert set(before) <= set(r.keeper.objects(kind="fulls"))
        status = r.keeper.json("status")[0]
        assert not status["protected"] and any("suspect" in risk for risk in status["risks"]), status
        full = next(o for o in r.keeper.json("list") if not o["suspect"])
        folder, _ = r.keeper.restore(full["last_revision"], "before")
        assert len(r.on(folder).client().state()[1]) == 201
        # Somebody says that it was meant.
        emptied = next(o for o in r.keeper.json("list") if o["suspect"])
        r.keeper.ok("annotate", "--trust", emptied["name"], "the pods were moved to another cluster")
        trusted = next(o for o in r.keeper.json("list") if o["name"] == emptied["name"])
        assert not trusted["suspect"] and trusted["note"].startswith("the pods"), trusted
        assert r.keeper.json("prune") is not None


@scenario()
def r62_a_huge_transaction_is_archived_and_restored(kind):
    """One transaction, far larger than what a message usually may have."""
    # Engram's gateway bounds a body whatever --max-request-bytes says; 40 MB of values are below that.
    puts, size = ((128 if kind == "etcd" else 40) if ALL else 16), 1_000_000
    with rig(kind, args=("--max-request-bytes=400000000", "--max-txn-ops=1000", "--quota-backend-bytes=4000000000")) as r:
        r.keeper.start()
        value = b64("v" * size)
        r.client.call("/v3/kv/txn", {"success": [{"request_put": {"key": b64(f"/huge/{i:03}"), "value": value}} for i in range(puts)]})
        last = r.client.put("/last", "x")
        r.keeper.archived(last)
        assert r.keeper.metric("last_full_revision") < last - 1, "a full has the transaction; it was to come from the archive"
        folder, report = r.keeper.restore("latest", "restored", "--no-bump")
        assert report["rows_replayed"] >= puts, report
        client = r.on(folder).client()
        for i in (0, puts - 1):
            got = client.call("/v3/kv/range", {"key": b64(f"/huge/{i:03}")})["kvs"][0]
            assert got["value"] == value and got["mod_revision"] == str(last - 1), got["mod_revision"]
        assert client.call("/v3/kv/range", {"key": b64("/huge/"), "range_end": b64("/huge0"), "count_only": True})["count"] == str(puts)
        return f"{puts} puts of {size // 1000} kB in one transaction"


@scenario()
def a_bundle_is_taken_by_the_daemon_when_there_is_one(kind):
    """Of the same state directory: it is asked, as for a full, and the answer reads the same."""
    with rig(kind, segment=0, stores=2) as r:
        pki = r.folder / "pki"
        pki.mkdir()
        (pki / "token").write_text("t0k3n\n")
        (pki / "broken.crt").write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
        r.client.put("/a", "1")
        r.keeper.configure(cluster_more=f"bundle: {{paths: [{pki}], every: 1h}}")
        alone = r.keeper.run("bundle", "take", "-o", "json")
        assert alone.code == DAMAGED, alone
        r.keeper.start()
        wait_for("the daemon's own bundle", lambda: len(r.keeper.objects(kind="bundles")) >= 2)
        beside = r.keeper.run("bundle", "take", "-o", "json")
        assert beside.code == DAMAGED, beside
        told, known = beside.json, alone.json
        assert told.pop("name") != known.pop("name") and told == known, (told, known)
        listed = [o for o in r.keeper.json("list") if o["kind"] == "bundle" and o["name"] == beside.json["name"]]
        assert listed and sorted(listed[0]["stores"]) == ["store0", "store1"], listed
        assert r.keeper.guards(), r.keeper.log()
        into = r.folder / "into"
        into.mkdir()
        r.keeper.ok("bundle", "extract", "--into", str(into), "--point", beside.json["name"])
        assert [p.read_text() for p in into.rglob("token")] == ["t0k3n\n"]
        r.keeper.configure(cluster_more="")
        r.keeper.stop()
        r.keeper.start()
        refused = r.keeper.run("bundle", "take")
        assert refused.code != OK and "no bundle paths" in refused.err, refused


class FakeMetrics:
    """A member's metrics page: `fsync` seconds for each of 50 fsyncs between two looks. `looks` counts them."""

    def __init__(self):
        self.fsync, self.looks, self.count, self.sum = 0.008, 0, 1000, 8.0
        page = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                page.looks += 1
                page.count += 50
                page.sum += 50 * page.fsync
                body = "".join(f"etcd_disk_{name}_duration_seconds_{what} {value}\n" for name in ("wal_fsync", "backend_commit")
                               for what, value in (("sum", page.sum), ("count", page.count))).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def begin_slow_full(r, metrics, more=""):
    """A daemon whose first full takes seconds, and looks at the metrics meanwhile."""
    for i in range(40):
        r.client.put(f"/big/{i}", "x" * 100_000)
    r.keeper.configure(cluster_more=f"snapshot_bandwidth: 1MiB/s\nmetrics_endpoints: [\"{metrics.url}\"]\n{more}")
    r.keeper.start(wait=False)
    wait_for("a look at the metrics", lambda: metrics.looks >= 1)


@scenario(quick=("etcd",))
def a_full_pauses_while_its_member_suffers(kind):
    metrics = FakeMetrics()
    try:
        with rig(kind, segment=0) as r:
            begin_slow_full(r, metrics)
            metrics.fsync = 0.040
            wait_for("the pause", lambda: r.keeper.metric("source_paused") == 1)
            assert r.keeper.metric("last_full_revision") == 0, "it did not wait"
            before = metrics.looks
            wait_for("further looks", lambda: metrics.looks >= before + 3)
            assert r.keeper.metric("source_paused") == 1
            metrics.fsync = 0.008
            wait_for("the full", r.keeper.guards)
            assert r.keeper.metric("source_paused") == 0 and r.keeper.metric("source_pauses_total") == 1
            assert r.keeper.metric("source_paused_seconds_total") >= 2
            log = r.keeper.log()
            assert log.count("a full pauses: its member suffers") == 1 and "8.0 ms before" in log and "a full goes on" in log, log
            full = r.keeper.json("list")[0]
            assert full["strain"].startswith("paused ") and "fsync 40.0 ms, 8.0 ms before" in full["strain"], full
            r.keeper.stop()
            r.keeper.ok("verify", "--all", "--deep")
            folder, _ = r.keeper.restore("latest", "after")
            compare(r.client.state()[1], r.on(folder).client().state()[1], "after a pause")
            return full["strain"]
    finally:
        metrics.close()


@scenario(quick=("engram",))
def a_full_yields_to_who_writes_and_ends_when_the_daemon_does(kind):
    with rig(kind, segment=0) as r:
        for i in range(200):
            r.client.put(f"/big/{i}", "x" * 100_000)
        # Minutes, if nobody asked whether to go on.
        r.keeper.configure(cluster_more="snapshot_bandwidth: 64KiB/s\npause_max: never\n")
        r.keeper.start(wait=False)
        incoming = lambda: list(r.keeper.state_dir.rglob("snapshot.db.part"))  # noqa: E731
        wait_for("a full on its way", lambda: any(p.stat().st_size > 0 for p in incoming()))
        r.keeper.stop()
        assert "a full was taken" not in r.keeper.log() and not incoming()
        r.keeper.configure(cluster_more="")
        out = r.keeper.ok("backup").out
        assert "yielding" not in out, out
        load = FastLoad(r.member, "yields", rate=200, records=1)
        try:
            load.until(20)
            out = r.keeper.ok("backup").out
            assert "yielding to writers" in out, out
        finally:
            load.finish()


@scenario(kinds=("engram",))
def a_member_that_does_not_recover_is_told_and_tried_again(kind):
    metrics = FakeMetrics()
    try:
        with rig(kind, segment=0) as r:
            begin_slow_full(r, metrics, "pause_max: 2s")
            metrics.fsync = 0.040
            wait_for("giving up", lambda: "did not recover" in r.keeper.log())
            assert r.keeper.metric("guarded") == 0 and not r.keeper.objects(kind="fulls")
            metrics.fsync = 0.008
            wait_for("the next attempt", r.keeper.guards, seconds=60)
            r.keeper.stop()
            # By hand it is one clear line, and another exit status.
            process = r.keeper.begin("backup")
            seen = metrics.looks
            wait_for("a look at the metrics", lambda: metrics.looks > seen)
            metrics.fsync = 1.0
            out, _ = process.communicate(timeout=60)
            assert process.returncode == UNREACHABLE and "did not recover in" in out and len(out.strip().splitlines()) <= 2, out
    finally:
        metrics.close()


@scenario(kinds=("engram",), long=True)
def metrics_that_cannot_be_had_are_told_once(kind):
    with rig(kind, segment=0, full="10s") as r:
        r.client.put("/a", "1")
        r.keeper.configure(cluster_more="metrics_endpoints: [\"http://127.0.0.1:1\"]")
        r.keeper.start()
        first = r.keeper.metric("last_full_timestamp_seconds")
        wait_for("a second full", lambda: r.keeper.metric("last_full_timestamp_seconds") > first, seconds=60)
        assert r.keeper.log().count("a member's metrics cannot be had") == 1, r.keeper.log()
        assert "127.0.0.1:1" in r.keeper.log()
