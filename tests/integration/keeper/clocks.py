"""The keeper's wall clock is set while it works: ahead, back, over a restart. The clusters, the stores and this test keep the real one."""
import contextlib
import json
import os
import struct
import time

from rig import SHIFTED_CLOCK, UNREACHABLE, UNSAFE, Load, check_restored, last_change, rig, rng, scenario, wait_for
from storage import Versitygw

HOUR, DAY = 3600, 86400
BACK = 4  # seconds
# What is older than a day goes: by a clock that is two days ahead, everything.
RETENTION = "retention: {window: 24h, hourly: 1, daily: 0, weekly: 0, monthly: 0, keep_proven: 1, every: 1m}"


class Clock:
    """The wall clock of a keeper's processes."""

    def __init__(self, r):
        self.path = r.folder / "clock"
        self.path.write_bytes(struct.pack("=q", 0))
        r.keeper.env = {**os.environ, "LD_PRELOAD": SHIFTED_CLOCK, "ENGRAM_CLOCK_FILE": str(self.path)}

    def set(self, shift):
        """So many seconds ahead of the real one from now on."""
        with open(self.path, "r+b") as f:
            f.write(struct.pack("=q", int(shift * 1e9)))


def moment(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f"{seconds % 1:.3f}"[1:] + "Z"


def checks(keeper):
    return [c for c in json.loads(keeper.run("check", "-o", "json").out) if c["what"] == "clock"]


def goes_on(r, load, ahead, fulls=1):
    """The archive and the fulls go on, ages make sense, and what the clock is off by is told in every place."""
    keeper = r.keeper
    wait_for("the clock to be named", lambda: abs(keeper.metric("clock_ahead_seconds") - ahead) < 5)
    for _ in range(fulls):
        full = keeper.metric("last_full_revision")
        load.until(load.done + 40)
        keeper.archived(load.newest())
        wait_for("a full by the schedule", lambda: keeper.metric("last_full_revision") > full)
    assert 0 <= keeper.metric("rpo_seconds") < 30, keeper.metrics()
    assert keeper.metric("guarded") == 1, keeper.log()[-1000:]
    wait_for("a head by the clock as it is", lambda: "rpo_seconds" in keeper.json("status")[0])
    status = keeper.json("status")[0]
    assert 0 <= status["rpo_seconds"] < 120 and status["window_seconds"] >= 0, status
    told = [risk for risk in status["risks"] if "clock" in risk]
    assert bool(told) == bool(ahead), status
    check, = checks(keeper)
    assert check["result"] == ("warning" if ahead else "ok"), check
    if ahead:
        assert ("ahead" if ahead > 0 else "set back") in told[0] and told[0] == check["text"], (told, check)


@scenario(quick=("engram", "etcd"))
def a_clock_that_is_set_while_it_works_costs_nothing(kind):
    with rig(kind, segment=0.2, full="10s", cluster_more=RETENTION, policy_more=", roll_ups: [1s, 2s], parts_stay: 0s") as r:
        clock = Clock(r)
        r.keeper.start()
        load = Load(r.member, "load", compactions=False, records=300).until(60)
        goes_on(r, load, 0)
        kept = {o["name"] for o in r.keeper.json("list")}
        for shift in (-HOUR, 2 * DAY):
            clock.set(shift)
            goes_on(r, load, shift, fulls=2)
        wait_for("retention to wait", lambda: "ahead" in r.keeper.json("status")[0]["retention"]["stopped"], seconds=90)
        assert r.keeper.metric("retention_ok") == 0 and r.keeper.metric("pruned_objects_total") == 0, r.keeper.metrics()
        assert "ahead" in r.keeper.fails(UNSAFE, "prune").err
        would = {w["name"] for w in r.keeper.json("prune", "--clock-is-right")}
        assert would & kept, "the clock that is ahead would cost nothing: this shows nothing"
        # A restart makes the clock no better.
        r.keeper.stop()
        r.keeper.start()
        goes_on(r, load, 2 * DAY)
        assert r.keeper.metric("pruned_objects_total") == 0
        # It is put right while no keeper runs.
        r.keeper.stop()
        clock.set(0)
        r.keeper.start()
        goes_on(r, load, 0)
        wait_for("retention to go on", lambda: not r.keeper.json("status")[0]["retention"]["stopped"], seconds=90)
        assert kept <= {o["name"] for o in r.keeper.json("list")}, "retention deleted what was young"
        for line in ("was set back", "is ahead of what it was", "is believed"):
            assert line in r.keeper.log_path.read_text(), line
        load.finish()
        last = last_change(r, load)
        r.keeper.stop()
        told = r.keeper.json("verify", "--all", "--deep")
        assert told["ok"] and not told["strangers"], told
        living = r.keeper.living()
        assert len(living["windows"]) == 1 and not living["holes"], living
        for revision in [*rng("revisions").sample(sorted(n for n in load.records if n <= last), 4), last]:
            folder, report = r.keeper.restore(revision, f"at-{revision}", "--no-bump")
            assert report["revision"] == report["possibly"] == revision and not report["shown_twice"], report
            check_restored(r, load, revision, folder)
        segments = [o for o in r.keeper.json("list", "--all") if o["kind"] == "segment"]
        return f"{len(segments)} segments, {len(kept)} kept, {len(would)} would have gone"


@scenario(quick=("engram", "etcd"))
def a_time_that_was_shown_twice_has_an_honest_error_bar(kind):
    with rig(kind, segment=0.2) as r:
        clock = Clock(r)
        r.keeper.start()
        load = Load(r.member, "load", compactions=False, records=60)
        began = time.time()
        wait_for("the load to have run for a while", lambda: time.time() > began + 1.5 * BACK)
        set_at = time.time()
        clock.set(-BACK)
        wait_for("the clock to show it all again", lambda: time.time() > set_at + 2 * BACK)
        load.finish()
        last = last_change(r, load)
        r.keeper.stop()
        r.keeper.env = None
        # What was there by the real time, as the clients know it: sent before it, and answered so long before it that the archive had it.
        surely = lambda at: max((a[0] for a in load.acked if a[1] <= at), default=0)
        possibly = lambda at: max((a[0] for a in load.acked if a[2] <= at - 1), default=0)
        random = rng("moments")
        moments = [(random.uniform(set_at - 0.6 * BACK, set_at - 0.1 * BACK), True) for _ in range(4)]
        moments += [(random.uniform(set_at + 0.1 * BACK, set_at + 0.9 * BACK), False) for _ in range(2)]
        for at, twice in moments:
            told = f"{moment(at)}, {at - set_at:.3f} s after it was set"
            folder, report = r.keeper.restore(moment(at), f"at-{at}", "--no-bump")
            assert report["shown_twice"] == twice, (told, report)
            assert report["revision"] <= surely(at if twice else at + BACK), (told, report)
            assert report["possibly"] >= possibly(at + BACK), (told, report)
            if twice:
                assert report["possibly"] > report["revision"], (told, report)
            if report["revision"] in load.records:
                check_restored(r, load, report["revision"], folder)
        at = set_at - 0.5 * BACK
        text = r.keeper.ok("restore", "--to", moment(at), "--data-dir", str(r.folder / "text"), "--no-bump").out
        assert "error bar: up to rev " in text and "twice" in text, text
        for revision in [*random.sample(sorted(n for n in load.records if n <= last), 2), last]:
            folder, report = r.keeper.restore(revision, f"revision-{revision}", "--no-bump")
            assert report["revision"] == report["possibly"] == revision and not report["shown_twice"], report
            check_restored(r, load, revision, folder)


@contextlib.contextmanager
def with_s3(kind, **options):
    with rig(kind, **options) as r:
        s3 = Versitygw(r.folder / "s3").start()
        try:
            r.keeper.configure(stores=[s3.store(prune_credentials_file=str(s3.credentials))])
            yield r
        finally:
            s3.stop()


@scenario(kinds=("engram",))
def a_wrong_clock_is_named_where_s3_refuses_it(kind):
    with with_s3(kind, segment=0) as r:
        r.client.put("/a", "1")
        r.keeper.ok("backup")
        clock = Clock(r)
        for shift in (2 * DAY, -2 * DAY):
            clock.set(shift)
            for words in (["backup", "--timeout", "3s"], ["list"], ["check"]):
                run = r.keeper.fails(UNREACHABLE, *words) if words != ["check"] else r.keeper.run(*words)
                told = run.err + run.out
                assert "set this machine's clock" in told and ("behind" if shift > 0 else "ahead") in told, run
        clock.set(0)
        r.keeper.ok("backup")
        assert all(c["result"] == "ok" for c in checks(r.keeper))


@scenario(kinds=("engram",))
def a_keeper_that_stood_still_for_a_month_asks_a_store_for_the_time(kind):
    with with_s3(kind, cluster_more=RETENTION) as r:
        r.client.put("/a", "1")
        r.keeper.start()
        r.keeper.stop()
        path = r.keeper.state_dir / "clusters/prod/state.json"
        state = json.loads(path.read_text())
        assert state["clock"]["looked"] > 0 and state["clock"]["ahead"] == 0, state
        state["clock"]["looked"] -= 30 * DAY * 10**9
        state["retention"]["at"] = 0
        path.write_text(json.dumps(state))
        r.keeper.start()
        wait_for("the store to confirm the clock", lambda: "the clocks of stores agree" in r.keeper.log())
        wait_for("retention to run", lambda: r.keeper.metric("retention_last_timestamp_seconds"))
        assert r.keeper.metric("clock_ahead_seconds") == 0 and r.keeper.metric("retention_ok") == 1, r.keeper.metrics()
        assert r.keeper.metric("clock_steps_total") == 1
