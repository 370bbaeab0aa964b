"""Histories that change under the keeper, and keepers that share a store or lost what they knew."""
import json
import signal

from rig import ALL, OK, UNSAFE, Load, Member, check_restored, compare, rig, scenario, wait_for


def timelines(keeper):
    return [t["timeline"] for t in keeper.windows()]


def put_some(client, prefix, count):
    for i in range(count):
        revision = client.put(f"/{prefix}/{i}", f"{prefix} {i}")
    return revision


@scenario(quick=("engram", "etcd"))
def r70_a_cluster_restored_under_the_keeper_begins_a_timeline(kind):
    """To an older revision, without a bump, with the same token and so the same cluster id; then it goes on past its old revision."""
    with rig(kind, token="the-same") as r:
        url = f"http://127.0.0.1:{r.member.peer_port}"
        same = ["--no-bump", "--initial-cluster-token", "the-same", "--name", "m1", "--initial-cluster", f"m1={url}",
                "--initial-advertise-peer-urls", url]
        r.keeper.start()
        middle = put_some(r.client, "old", 30)
        old_middle = r.client.state()[1]
        old_last = put_some(r.client, "gone", 30)
        old_state = r.client.state()[1]
        r.keeper.archived(old_last)
        folder, _ = r.keeper.restore(middle, "rolled-back", *same)
        peer = r.member.peer_port
        r.member.kill()
        port = r.member.client_port
        r.member = Member(kind, folder, token="the-same")
        r.member.client_port, r.member.peer_port = port, peer
        r.members.append(r.member)
        r.member.start()
        r.client = r.member.client()
        assert r.client.revision() == middle
        new_last = put_some(r.client, "new", 50)
        assert new_last > old_last
        wait_for("a new timeline", lambda: len(timelines(r.keeper)) == 2, seconds=60)
        r.keeper.archived(put_some(r.client, "newer", 5))
        state = r.client.state()
        old, new = r.keeper.windows()
        assert new["living"] and not old["living"], (old, new)
        folder, report = r.keeper.restore("latest", "new", "--no-bump")
        assert report["revision"] == state[0], (report, state[0])
        compare(state[1], r.on(folder).client().state()[1], "the new timeline")
        for revision, wanted in ((middle, old_middle), (old_last, old_state)):
            folder, _ = r.keeper.restore(revision, f"old-{revision}", "--no-bump", "--timeline", old["timeline"])
            compare(wanted, r.on(folder).client().state()[1], f"the old timeline at {revision}")
        r.keeper.ok("verify", "--all", "--deep")


@scenario()
def a_cluster_replaced_under_the_keeper_begins_a_timeline(kind):
    with rig(kind) as r:
        r.keeper.start()
        r.keeper.archived(put_some(r.client, "first", 20))
        first = r.client.state()
        other = r.folder / "other"
        r.member.kill()
        port = r.member.client_port
        r.member = Member(kind, other, token="another")
        r.member.client_port = port
        r.members.append(r.member)
        r.member.start()
        put_some(r.member.client(), "second", 30)
        wait_for("a new timeline", lambda: len(timelines(r.keeper)) == 2)
        last = put_some(r.member.client(), "third", 3)
        r.keeper.archived(last)
        state = r.member.client().state()
        folder, _ = r.keeper.restore("latest", "new", "--no-bump")
        compare(state[1], r.on(folder).client().state()[1], "the new cluster")
        old = r.keeper.windows()[0]
        folder, _ = r.keeper.restore("latest", "old", "--no-bump", "--timeline", old["timeline"])
        compare(first[1], r.on(folder).client().state()[1], "the old cluster")


@scenario()
def r59_two_keepers_on_one_store(kind):
    """One of them stands still for a while. What they write overlaps, and no part of it is in the other's way."""
    with rig(kind) as r:
        second = r.another_keeper("second")
        second.configure(stores=r.keeper.stores, more=f"trusted_signers: [\"{r.keeper.signer}\"]",
                         recipients=r.keeper.recipients, identity=r.keeper.identity)
        r.keeper.configure(more=f"trusted_signers: [\"{second.signer}\"]")
        r.keeper.start()
        second.start()
        load = Load(r.member, "load").until(150)
        second.daemon.send_signal(signal.SIGSTOP)
        load.until(450)
        second.daemon.send_signal(signal.SIGCONT)
        load.until(650 if not ALL else 5000).finish()
        last = r.client.put("/last", "x")
        for keeper in (r.keeper, second):
            keeper.archived(last)
        load.records[last] = r.client.state()[1]
        r.keeper.ok("verify", "--all", "--deep")
        known = [n for n in load.records if n <= last]
        for revision in (last, known[len(known) // 2]):
            for keeper in (r.keeper, second):
                folder, _ = keeper.restore(revision, f"at-{revision}", "--no-bump")
                check_restored(r, load, revision, folder)
        writers = {o["writer"] for o in r.keeper.json("list", "--all")}
        assert len(writers) == 2, writers
        assert len(timelines(r.keeper)) == 1, timelines(r.keeper)


@scenario()
def a_lost_state_directory_is_another_writer(kind):
    with rig(kind) as r:
        r.keeper.start()
        load = Load(r.member, "one").until(100).finish()
        r.keeper.archived(r.client.put("/a", "1"))
        r.keeper.kill()
        r.keeper.state_dir.rename(r.folder / "lost")
        r.keeper.start()
        more = Load(r.member, "two").until(100).finish()
        last = r.client.put("/b", "2")
        r.keeper.archived(last)
        assert len(timelines(r.keeper)) == 1, "nothing happened to the cluster: its timeline goes on"
        load.records.update(more.records)
        load.hashes.update(more.hashes)
        load.records[last] = r.client.state()[1]
        for revision in (last, min(more.records), max(n for n in load.records if n < min(more.records))):
            folder, _ = r.keeper.restore(revision, f"at-{revision}", "--no-bump")
            check_restored(r, load, revision, folder)
        r.keeper.ok("verify", "--all")


@scenario()
def a_cluster_made_anew_is_seen_although_the_state_directory_was_lost(kind):
    """The same token, so the same cluster id, and the same first revision."""
    with rig(kind, token="the-same") as r:
        r.keeper.start()
        r.keeper.archived(put_some(r.client, "old", 40))
        old = r.client.state()
        r.keeper.kill()
        peer, port = r.member.peer_port, r.member.client_port
        r.member.kill()
        r.keeper.state_dir.rename(r.folder / "lost")
        r.member = Member(kind, r.folder / "anew", token="the-same")
        r.member.client_port, r.member.peer_port = port, peer
        r.members.append(r.member)
        r.member.start()
        r.keeper.start()
        r.keeper.archived(put_some(r.member.client(), "new", 10))
        new = r.member.client().state()
        living = r.keeper.living()
        assert len(timelines(r.keeper)) == 2, f"two histories are told as one: {r.keeper.windows()}"
        folder, report = r.keeper.restore("latest", "new", "--no-bump")
        compare(new[1], r.on(folder).client().state()[1], "the cluster made anew")
        first = next(t["timeline"] for t in r.keeper.windows() if not t["living"])
        folder, report = r.keeper.restore("latest", "old", "--no-bump", "--timeline", first)
        compare(old[1], r.on(folder).client().state()[1], "the cluster that is gone")
        assert living["timeline"] != first


@scenario(kinds=("engram",))
def a_second_daemon_on_one_state_directory_is_refused(kind):
    with rig(kind) as r:
        r.keeper.start()
        refused = r.keeper.fails(UNSAFE, "run")
        assert "another daemon uses" in refused.err, refused
        r.keeper.stop()
        r.keeper.start()


@scenario()
def r64_backups_at_once_are_each_whole(kind):
    """Beside each other, and beside the daemon."""
    with rig(kind) as r:
        for i in range(300):
            r.client.put(f"/registry/{i}", "v" * 2000)
        r.keeper.start()
        load = Load(r.member, "load", compactions=False)
        begun = [r.keeper.begin("backup") for _ in range(3)]
        ends = [(p.communicate(timeout=120)[0], p.returncode) for p in begun]
        load.until(100).finish()
        last = r.client.put("/last", "x")
        r.keeper.archived(last)
        failed = [(out, code) for out, code in ends if code != OK]
        assert not failed, failed
        r.keeper.ok("verify", "--all", "--deep")
        fulls = r.keeper.json("list")
        assert len(fulls) >= 2, fulls
        assert not r.keeper.living()["holes"]
        load.records[last] = r.client.state()[1]
        for revision in (last, min(load.records)):
            folder, _ = r.keeper.restore(revision, f"at-{revision}", "--no-bump")
            check_restored(r, load, revision, folder)
        # Without a daemon each takes its own, one after the other.
        r.keeper.stop()
        begun = [r.keeper.begin("backup", "-o", "json") for _ in range(3)]
        ends = [(p.communicate(timeout=120)[0], p.returncode) for p in begun]
        assert all(code == OK for _, code in ends), ends
        assert len({json.loads(out)["name"] for out, _ in ends}) == 3, ends
        r.keeper.ok("verify", "--all", "--deep")
        left = [p for p in r.keeper.state_dir.rglob("*") if p.is_file() and ({"requests", "scratch", "spool"} & set(p.parts))]
        assert not left, left
