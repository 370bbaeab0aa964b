"""Segments that were rolled up into containers, and chunks of the log that were merged: few objects, and nothing else is different."""
import calendar
import collections
import hashlib
import json
import os
import subprocess
import time

from rig import ALL, DAMAGED, KEY, OK, Load, Member, check_restored, compare, last_change, rig, rng, scenario, tool, wait_for

LONG = 2  # seconds
SHORT = f", roll_ups: [1s, {LONG}s], parts_stay: 0s"


def archive(keeper, store=0):
    """{folder: names}: live, 1, 2."""
    found = {"live": [], "1": [], "2": []}
    for path in keeper.objects(store, kind="archive"):
        found[path.parent.name].append(path)
    return found


def chunks(keeper, store=0):
    return [p for p in keeper.objects(store, kind="log") if p.name != "head.json"]


def settled(keeper, stores=1):
    """Nothing more will be rolled up: in no span of the longer kind is more than one object, and no store has anything beside these."""
    def done():
        assert keeper.daemon is None or keeper.daemon.poll() is None, keeper.log()[-1500:]
        objects = [o for o in keeper.json("list", "--all") if o["kind"] in ("segment", "roll-up") and not o["pruned"]]
        outermost = [o for o in objects if not o["container"]]
        spans = collections.Counter(calendar.timegm(time.strptime(o["last_seen"][:19], "%Y-%m-%dT%H:%M:%S")) // LONG for o in outermost)
        return (any(o["level"] for o in outermost) and max(spans.values()) == 1 and
                all(len(keeper.objects(i, kind="archive")) == len(outermost) for i in range(stores)))
    wait_for("segments to be rolled up", done, seconds=60)


def segments_of(keeper):
    return [o for o in keeper.json("list", "--all") if o["kind"] == "segment"]


def load_until_rolled_up(r, changes):
    """A load that has made so many changes at least, and ended once a container holds some of them: a span with a single segment is not rolled up."""
    load = Load(r.member, "load", compactions=False).until(changes)
    wait_for("a held segment", lambda: load.failures or [s for s in segments_of(r.keeper) if s["held_in"]])
    return load.finish()


def restore_some(r, load, name, count):
    known = sorted(n for n in load.records if n <= max(w["last_revision"] for w in r.keeper.living()["windows"]))
    for revision in rng(name).sample(known, min(count, len(known))):
        folder, report = r.keeper.restore(revision, f"{name}-{revision}", "--no-bump")
        assert report["revision"] == revision, report
        check_restored(r, load, revision, folder)


@scenario()
def rolled_up_segments_restore_as_before(kind):
    with rig(kind, segment=0.1, policy_more=SHORT) as r:
        r.keeper.start()
        load = Load(r.member, "load", compactions=False).until(400 if not ALL else 3000)
        wait_for("a container while changes come in", lambda: archive(r.keeper)["1"] or archive(r.keeper)["2"])
        load.finish()
        last = last_change(r, load)
        settled(r.keeper)
        segments = segments_of(r.keeper)
        held = [s for s in segments if s["held_in"]]
        assert held, segments
        assert len(chunks(r.keeper)) < 70, chunks(r.keeper)
        r.keeper.ok("verify", "--all")
        deep = r.keeper.json("verify", "--all", "--deep")
        assert deep["ok"] and not deep["strangers"], deep
        living = r.keeper.living()
        assert len(living["windows"]) == 1 and not living["holes"], living
        restore_some(r, load, "revision", 8 if ALL else 1)
        history = r.keeper.json("history", "/last")
        assert history and history[-1]["revision"] == last, history
        r.keeper.stop()
        objects = len(r.keeper.objects())
        return f"{len(segments)} segments, {objects} objects in the store, {len(chunks(r.keeper))} of them chunks of the log"


@scenario(kinds=("engram",))
def a_segment_is_read_out_of_a_container_by_hand(kind):
    age, zstd = tool("age"), tool("zstd")
    with rig(kind, segment=0.1, policy_more=SHORT) as r:
        r.keeper.start()
        load_until_rolled_up(r, 100)
        segment = [s for s in segments_of(r.keeper) if s["held_in"]][-1]
        where = segment["held_in"]["store0"]
        container = r.keeper.store() / where["container"]
        offset, length = where["offset"], segment["stored_bytes"]
        plain = subprocess.run(["bash", "-c", f"set -o pipefail; tail -c +{offset + 1} '{container}' | head -c {length} | "
                                f"'{age}' -d -i '{r.keeper.identity}' | '{zstd}' -d"], capture_output=True)
        assert hashlib.sha256(plain.stdout).hexdigest() == segment["plain_sha256"], plain.stderr
        # The log says the same.
        stated = {}
        for path in chunks(r.keeper):
            for line in path.read_text().splitlines()[:-1]:
                fact = json.loads(line)
                if fact["kind"] == "stored":
                    stated[fact["fact"]["name"]] = fact["fact"]
        inner = segment["container"]
        part = next(p for p in stated[inner]["parts"] if p["name"] == segment["name"])
        assert part["bytes"] == length, part
        if inner == where["container"]:
            assert part["offset"] == offset, (part, where)


@scenario(long=True)
def a_damaged_container_is_healed_from_the_other_store(kind):
    with rig(kind, stores=2, segment=0.1, policy_more=SHORT) as r:
        r.keeper.start()
        load = load_until_rolled_up(r, 200)
        last = last_change(r, load)
        settled(r.keeper, stores=2)
        r.keeper.stop()
        found = archive(r.keeper)
        container = (found["2"] + found["1"])[0]
        good = container.read_bytes()
        middle = len(good) // 2
        container.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1:])
        told = r.keeper.run("verify", "--all")
        assert told.code == DAMAGED and container.name in told.out, told
        folder, report = r.keeper.restore(last, "while-damaged", "--no-bump")
        check_restored(r, load, last, folder)
        r.keeper.fails(DAMAGED, "restore", "--to", str(last), "--from", "store0", "--data-dir", str(r.folder / "x"))
        healed = r.keeper.json("copy", "--check")
        assert healed["healed"] == 1 and not healed["failed"], healed
        assert container.read_bytes() == good
        r.keeper.ok("verify", "--all", "--deep")
        container.unlink()
        assert r.keeper.run("verify").code == DAMAGED
        r.keeper.ok("copy")
        r.keeper.ok("verify", "--all", "--deep")
        # A store that is new gets containers, not their parts.
        third = r.keeper.folder / "store2"
        third.mkdir()
        r.keeper.configure(stores=[*r.keeper.stores, {"name": "store2", "type": "file", "path": str(third)}])
        r.keeper.ok("copy")
        r.keeper.ok("verify", "--all", "--deep")
        assert {k: len(v) for k, v in archive(r.keeper, 2).items()} == {k: len(v) for k, v in archive(r.keeper, 1).items()}
        folder, _ = r.keeper.restore(last, "from-the-third", "--no-bump", "--from", "store2")
        check_restored(r, load, last, folder)


@scenario(long=True)
def killed_while_it_rolls_up_it_loses_nothing(kind):
    rounds = 40 if ALL else 12
    with rig(kind, stores=2, segment=0.1, policy_more=SHORT) as r:
        r1 = rng("moments")
        load = Load(r.member, "load", threads=1, records=60, compactions=False)
        for _ in range(rounds):
            r.keeper.start(wait=False)
            until = time.monotonic() + r1.choice([0.3, 1.1, 1.3, 1.6, 2.2])
            wait_for("the instant", lambda: time.monotonic() > until)
            r.keeper.kill()
        r.keeper.start()
        load.until(load.done + 50).finish()
        last = last_change(r, load)
        settled(r.keeper, stores=2)
        r.keeper.stop()
        told = r.keeper.json("verify", "--all", "--deep")
        assert told["ok"] and not told["strangers"], told
        living = r.keeper.living()
        assert len(living["windows"]) == 1 and not living["holes"], living
        names = [s["name"] for s in segments_of(r.keeper)]
        assert len(names) == len(set(names))
        restore_some(r, load, "at", 6)
        for store in ("store0", "store1"):
            folder, _ = r.keeper.restore(last, f"from-{store}", "--from", store, "--no-bump")
            check_restored(r, load, last, folder)
        return f"{rounds} kills, {len(names)} segments, {len(r.keeper.objects())} objects"


@scenario(long=True)
def retention_removes_whole_containers(kind):
    with rig(kind, segment=0.1, policy_more=SHORT, cluster_more="retention: {window: none, hourly: 1, keep_proven: 1}") as r:
        r.keeper.start()
        load = load_until_rolled_up(r, 150)
        r.keeper.archived(load.newest())
        settled(r.keeper)
        r.keeper.stop()
        before = archive(r.keeper)
        containers = [p.name for p in before["1"] + before["2"]]
        assert containers
        # Nothing goes while a part of it is needed: these segments lead to the newest point.
        plan = r.keeper.json("prune")
        assert not [d for d in plan if d["name"].rsplit("/", 1)[1] in containers], plan
        full = r.keeper.json("backup")
        plan = r.keeper.json("prune")
        assert set(containers) <= {d["name"].rsplit("/", 1)[1] for d in plan}, (containers, plan)
        r.keeper.ok("prune", "--yes")
        after = archive(r.keeper)
        assert not after["1"] and not after["2"], after
        told = r.keeper.json("verify", "--all", "--deep")
        assert told["ok"] and not told["strangers"], told
        folder, report = r.keeper.restore("latest", "latest", "--no-bump")
        assert report["revision"] == full["revision"], report


@scenario(long=True)
def two_keepers_on_one_store_roll_up_each_its_own(kind):
    with rig(kind, segment=0.1, policy_more=SHORT) as r:
        second = r.another_keeper("second", segment=0.1, policy_more=SHORT)
        second.configure(stores=r.keeper.stores, recipients=r.keeper.recipients, identity=r.keeper.identity,
                         more=f"trusted_signers: [{json.dumps(r.keeper.signer)}]")
        r.keeper.configure(more=f"trusted_signers: [{json.dumps(second.signer)}]")
        r.keeper.start()
        second.start()
        load = load_until_rolled_up(r, 400)
        last = last_change(r, load)
        second.archived(last)
        def rolled():
            writers = {p.relative_to(r.keeper.store()).parts[2] for p in archive(r.keeper)["1"] + archive(r.keeper)["2"]}
            return len(writers) == 2
        wait_for("both to have rolled up", rolled, seconds=60)
        r.keeper.stop()
        second.stop()
        for keeper in (r.keeper, second):
            told = keeper.json("verify", "--all", "--deep")
            assert told["ok"] and told["logs"] == 2 and not told["strangers"], told
        restore_some(r, load, "two", 4)


@scenario(long=True)
def segments_in_s3_are_rolled_up(kind):
    from storage import Versitygw
    with rig(kind, segment=0.1, policy_more=SHORT) as r:
        s3 = Versitygw(r.folder).start()
        try:
            r.keeper.configure(stores=[*r.keeper.stores, s3.store()])
            r.keeper.start()
            load = load_until_rolled_up(r, 300)
            last = last_change(r, load)
            settled(r.keeper)
            wait_for("the same in S3", lambda: len(list((r.folder / "data").rglob("*.seg"))) == len(r.keeper.objects(kind="archive")))
            r.keeper.stop()
            told = r.keeper.json("verify", "--all", "--deep")
            assert told["ok"] and not told["strangers"], told
            folder, _ = r.keeper.restore(last, "from-s3", "--from", "s3", "--no-bump")
            check_restored(r, load, last, folder)
        finally:
            s3.stop()


def objects_of(keeper):
    return [o for o in keeper.json("list", "--all") if not o["pruned"]]


def rewrap_all(r, roots, load):
    """Everything in the stores, whose folders are `roots`, is wrapped for a new key, and opens with nothing else."""
    last = last_change(r, load)
    r.keeper.stop()
    r.keeper.ok("backup")
    old, fresh = r.keeper.identity, r.folder / "fresh"
    assert r.keeper.plain("keys", "generate", "--identity", str(fresh)).code == OK
    recipient = fresh.read_text().split(": ")[1].split("\n")[0]
    r.keeper.configure(recipients=[recipient])
    before = objects_of(r.keeper)
    held = [o for o in before if o["kind"] == "segment" and o["container"]]
    loose = [o for o in before if o["kind"] == "segment" and not o["container"]]
    planned = r.keeper.json("keys", "rewrap")
    assert sum(c["segments"] for c in planned["roll_ups"]) == len(held) > 0, (planned, held)
    assert len(planned["objects"]) == len(before) - len(held) - len([o for o in before if o["level"]]), planned
    done = r.keeper.json("keys", "rewrap", "--yes")
    assert done["rewrapped"] == len(held) + len(planned["objects"]) and not done["failed"] and not done["left"], done
    nothing = r.keeper.json("keys", "rewrap")
    assert not nothing["objects"] and not nothing["roll_ups"], nothing
    after = objects_of(r.keeper)
    segments = [o for o in after if o["kind"] == "segment"]
    assert all(o["recipients"] == [recipient] for o in segments) and len(segments) == len(held) + len(loose), segments
    def facts(objects):
        return sorted((o["first_revision"], o["last_revision"], o["plain_sha256"]) for o in objects if not o["level"])
    assert facts(after) == facts(before), "the same segments and fulls"
    gone = {o["name"] for o in before} - {o["name"] for o in after}
    assert len(gone) == len(before), "each has another name"
    r.keeper.ok("prune", "--yes")  # sweeps what the daemon had not cleared away yet
    for root in roots:
        there = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
        assert not there & gone, there & gone
    # By hand: the old identity opens no segment of a new container, the new one opens it.
    age, zstd = tool("age"), tool("zstd")
    segment = next(s for s in segments if s["held_in"])
    where = next(iter(segment["held_in"].values()))
    container, offset, length = roots[0] / where["container"], where["offset"], segment["stored_bytes"]
    for identity, opens in ((old, False), (fresh, True)):
        plain = subprocess.run(["bash", "-c", f"set -o pipefail; tail -c +{offset + 1} '{container}' | head -c {length} | "
                                f"'{age}' -d -i '{identity}' | '{zstd}' -d"], capture_output=True)
        assert (hashlib.sha256(plain.stdout).hexdigest() == segment["plain_sha256"]) == opens, plain.stderr
    r.keeper.fails(KEY, "restore", "--data-dir", str(r.folder / "x"))
    r.keeper.configure(identity=fresh)
    verified = r.keeper.json("verify", "--all", "--deep")
    assert verified["ok"] and not verified["strangers"], verified
    restore_some(r, load, "rewrapped", 2)
    folder, _ = r.keeper.restore(last, "last", "--no-bump")
    check_restored(r, load, last, folder)
    # The daemon goes on after it, and rolls the new ones up further.
    r.keeper.start()
    r.keeper.archived(r.client.put("/after", "1"))
    r.keeper.stop()
    verified = r.keeper.json("verify", "--all", "--deep")
    assert verified["ok"] and not verified["strangers"], verified
    living = r.keeper.living()
    assert len(living["windows"]) == 1 and not living["holes"], living
    return f"{len(held)} segments in {len(planned['roll_ups'])} roll-ups, {len(loose)} for themselves"


@scenario(kinds=("engram",))
def rewrapped_roll_ups_open_with_the_new_key_alone(kind):
    with rig(kind, stores=2, segment=0.1, policy_more=SHORT) as r:
        r.keeper.start()
        load = load_until_rolled_up(r, 150)
        return rewrap_all(r, [r.keeper.store(0), r.keeper.store(1)], load)


@scenario(kinds=("engram",), long=True)
def roll_ups_in_s3_are_rewrapped(kind):
    from storage import Versitygw
    with rig(kind, segment=0.1, policy_more=SHORT) as r:
        s3 = Versitygw(r.folder).start()
        try:
            r.keeper.configure(stores=[s3.store()])
            r.keeper.start()
            load = load_until_rolled_up(r, 150)
            return rewrap_all(r, [r.folder / "data/cp-backups/prod/own"], load)
        finally:
            s3.stop()


@scenario(kinds=("engram",), long=True)
def roll_ups_are_rewrapped_beside_a_daemon_by_another_host(kind):
    """The daemon rolls up and goes on archiving for the old key; the host that has the identity wraps it all anew, killed now and then."""
    with rig(kind, segment=0.1, policy_more=SHORT) as r:
        fresh = r.folder / "fresh"
        assert r.keeper.plain("keys", "generate", "--identity", str(fresh)).code == OK
        recipient = fresh.read_text().split(": ")[1].split("\n")[0]
        host = r.another_keeper("host", segment=0.1, policy_more=SHORT)
        host.configure(stores=r.keeper.stores, recipients=[recipient], identity=r.keeper.identity, more=f"trusted_signers: [{json.dumps(r.keeper.signer)}]")
        r.keeper.configure(more=f"trusted_signers: [{json.dumps(host.signer)}]")
        r.keeper.start()
        load = Load(r.member, "load", compactions=False).until(150)
        wait_for("a held segment", lambda: load.failures or [s for s in segments_of(r.keeper) if s["held_in"]])
        kills = 0
        for moment in rng("moments").sample(range(5, 80), 8):
            process = host.begin("keys", "rewrap", "--yes")
            try:
                process.wait(timeout=moment / 1000)
            except subprocess.TimeoutExpired:
                kills += 1
            process.kill()
            process.wait()
            process.stdout.close()
        load.finish()
        last = last_change(r, load)
        r.keeper.stop()
        host.ok("keys", "rewrap", "--yes")
        host.ok("prune", "--yes")
        host.configure(identity=fresh)
        told = host.json("verify", "--all", "--deep")
        assert told["ok"] and not told["strangers"], told
        living = host.living()
        assert len(living["windows"]) == 1 and not living["holes"], living
        folder, _ = host.restore(last, "with-fresh", "--no-bump")
        check_restored(r, load, last, folder)
        # The daemon and the host agree from here on.
        r.keeper.configure(recipients=[recipient], identity=fresh)
        r.keeper.start()
        r.keeper.archived(r.client.put("/after", "1"))
        r.keeper.stop()
        told = r.keeper.json("verify", "--all", "--deep")
        assert told["ok"] and not told["strangers"], told
        return f"{kills} kills"


def loose_of(keeper, timeline=None, writer=None):
    """Segments that lie for themselves below a timeline or a writer."""
    return [p for p in archive(keeper)["live"] if {timeline, writer} & set(p.relative_to(keeper.store()).parts)]


@scenario(kinds=("engram",))
def what_an_ended_timeline_left_is_rolled_up(kind):
    with rig(kind, segment=0.1, policy_more=", roll_ups: none") as r:
        r.keeper.start()
        load = Load(r.member, "load", compactions=False).until(150)
        wait_for("some segments", lambda: load.failures or len(archive(r.keeper)["live"]) > 8)
        load.finish()
        last = last_change(r, load)
        r.keeper.archived(last)
        r.keeper.stop()
        old = r.keeper.living()["timeline"]
        loose = len(loose_of(r.keeper, timeline=old))
        r.member.kill()
        port = r.member.client_port
        r.member = Member(kind, r.folder / "other", token="another")
        r.member.client_port = port
        r.members.append(r.member)
        r.member.start()
        r.keeper.configure(policy_more=SHORT + ", adopt_after: 4s")
        r.keeper.start()
        wait_for("another timeline", lambda: r.keeper.living()["timeline"] != old)
        wait_for("the old segments to be rolled up", lambda: len(loose_of(r.keeper, timeline=old)) <= 1, seconds=60)
        r.keeper.archived(r.member.client().put("/after", "1"))
        r.keeper.stop()
        told = r.keeper.json("verify", "--all", "--deep")
        assert told["ok"] and not told["strangers"], told
        folder, _ = r.keeper.restore(last, "old", "--no-bump", "--timeline", old)
        check_restored(r, load, last, folder)
        return f"{loose} segments"


@scenario(kinds=("engram",))
def what_a_lost_keeper_left_is_rolled_up_by_one_that_lives(kind):
    with rig(kind, segment=0.1, policy_more=SHORT) as r:
        r.keeper.start()
        load = Load(r.member, "load", compactions=False).until(200 if not ALL else 1000)
        wait_for("a held segment", lambda: load.failures or [s for s in segments_of(r.keeper) if s["held_in"]])
        r.keeper.kill()
        lost = next(p.relative_to(r.keeper.store()).parts[2] for p in r.keeper.objects(kind="fulls"))
        left = len(loose_of(r.keeper, writer=lost))
        r.keeper.state_dir.rename(r.folder / "lost")
        r.keeper.configure(policy_more=SHORT + ", adopt_after: 4s")
        r.keeper.start()
        load.finish()
        last = last_change(r, load)
        def done():
            # What is alone in its longer span stays so.
            return len(loose_of(r.keeper, writer=lost)) <= 1 and [
                s for s in segments_of(r.keeper) if f"/{lost}/" in s["name"] and any(f"/{lost}/" not in h["container"] for h in s["held_in"].values())]
        wait_for("the lost keeper's segments to be rolled up", done, seconds=90)
        r.keeper.stop()
        told = r.keeper.json("verify", "--all", "--deep")
        assert told["ok"] and not told["strangers"], told
        living = r.keeper.living()
        assert len(living["windows"]) == 1 and not living["holes"], living
        restore_some(r, load, "at", 3)
        folder, _ = r.keeper.restore(last, "last", "--no-bump")
        check_restored(r, load, last, folder)
        return f"{left} segments lay loose"
