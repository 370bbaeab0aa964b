"""From the first change to the comparison after a disaster."""
import time

from rig import ALL, SEGMENT_SECONDS, FastLoad, Load, check_restored, compare, rig, rng, scenario

CHANGES = 6000 if ALL else 900
RANDOM_REVISIONS = 20 if ALL else 3
RATE = 1000


def journey(kind, tls, load_class=Load, changes=CHANGES, revisions=RANDOM_REVISIONS, **options):
    options = {"records": 200 if ALL else 40, **options}
    with rig(kind, tls=tls) as r:
        keeper = r.keeper.start()
        load = load_class(r.member, "before", **options).until(changes // 2).finish()
        # A moment: what was acknowledged by now is archived, and what comes later is sent later.
        quiet = r.client.revision()
        keeper.archived(quiet)
        moment = time.time()
        at_moment = r.client.state(quiet)[1]
        more = load_class(r.member, "after", **options).until(changes // 2)
        keeper.archived(quiet + 1)  # so that the moment is over for the archive, too
        killed = time.time()
        r.member.kill()
        more.finish()
        r.member.wipe()
        keeper.kill()  # with its host, at the same moment: nothing is archived from memory afterwards
        keeper.ok("verify", "--all", "--deep")

        changes = load.done + more.done
        acked = load.acked + more.acked
        records = {**load.records, **more.records, quiet: at_moment}
        hashes = {**load.hashes, **more.hashes}
        load.records, load.hashes = records, hashes
        folder, report = keeper.restore("latest", "latest", "--no-bump")
        latest, newest = report["revision"], max(a[0] for a in acked)
        lost = [a for a in acked if a[0] > latest]
        lost_seconds = killed - min((a[2] for a in lost), default=killed)
        # One write to a store takes far less than a second here; the machine may be busy with other tests.
        allowed = SEGMENT_SECONDS + 1.0
        assert lost_seconds <= allowed, f"lost {lost_seconds:.2f} s, {newest - latest} revisions; allowed are {allowed} s"
        assert latest <= newest + 2, f"restored {latest}, acknowledged were {newest}"

        keys = hashed = 0
        r1 = rng("revisions")
        candidates = sorted(n for n in records if n <= latest)
        chosen = {quiet, *r1.sample(candidates, min(revisions, len(candidates)))}
        if latest in records:
            chosen.add(latest)
        for revision in chosen:
            folder, report = keeper.restore(revision, f"at-{revision}", "--no-bump")
            assert report["revision"] == revision, report
            count, with_hash = check_restored(r, load, revision, folder)
            keys, hashed = keys + count, hashed + with_hash
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + f".{int(moment % 1 * 1e6):06}Z"
        folder, report = keeper.restore(stamp, "moment", "--no-bump")
        assert report["revision"] == quiet, f"at {stamp} the cluster was at {quiet}: {report}"
        member = r.on(folder)
        compare(at_moment, member.client().state()[1], stamp)
        return (f"{changes} changes, {changes / (load.seconds + more.seconds):.0f} a second; {len(chosen)} revisions and a moment: {keys} keys equal, "
                f"HashKV compared {hashed} times; lost at latest {newest - latest} revisions, {lost_seconds:.3f} s (allowed {SEGMENT_SECONDS} s and "
                f"one store write)")


@scenario(quick=("engram", "etcd"))
def journey_plain(kind):
    return journey(kind, tls=False)


@scenario()
def journey_mtls(kind):
    return journey(kind, tls=True)


def at_full_rate(kind, tls):
    return journey(kind, tls, FastLoad, changes=20 * RATE, revisions=20, rate=RATE, records=60)


@scenario(long=True)
def journey_at_full_rate_plain(kind):
    return at_full_rate(kind, tls=False)


@scenario(long=True)
def journey_at_full_rate_mtls(kind):
    return at_full_rate(kind, tls=True)
