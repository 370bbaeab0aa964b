"""The keeper may be killed at any instant."""
import re
import signal
import subprocess
import time

from rig import ALL, KEEPER, Load, check_restored, compare, last_change, rig, rng, scenario, spawn, tool, wait_for


def killed(kind, compactions):
    rounds = 60 if ALL else 8
    with rig(kind, stores=2) as r:
        r1 = rng("moments")
        load = Load(r.member, "load", threads=1, records=100, compactions=compactions)
        for _ in range(rounds):
            r.keeper.start(wait=False)
            # The instant is a number of metric's changes or a moment after the start: whatever comes first.
            until = time.monotonic() + r1.choice([0.05, 0.1, 0.2, 0.4, 0.8])
            wait_for("the instant", lambda: time.monotonic() > until)
            r.keeper.kill()
        r.keeper.start()
        load.until(load.done + 100).finish()
        last = last_change(r, load)
        r.keeper.stop()
        r.keeper.ok("verify", "--all", "--deep")
        windows = r.keeper.windows()
        assert len(windows) == 1, f"nothing happened to the cluster, but its history was split: {windows}"
        windows = windows[0]
        if not compactions:
            assert not windows["holes"] and len(windows["windows"]) == 1, f"nothing was compacted, and yet something was lost: {windows}"
        inside = [n for n in load.records if any(w["first_revision"] <= n <= w["last_revision"] for w in windows["windows"])]
        assert last in inside, windows
        chosen = {last, *r1.sample(inside, min(len(inside), 10 if ALL else 2))}
        for revision in sorted(chosen):
            folder, _ = r.keeper.restore(revision, f"at-{revision}", "--no-bump")
            check_restored(r, load, revision, folder)
        for store in ("store0", "store1"):
            folder, _ = r.keeper.restore(last, f"from-{store}", "--from", store, "--no-bump")
            check_restored(r, load, last, folder)
        return f"{rounds} kills, {load.done} changes, {len(windows['windows'])} windows, {len(windows['holes'])} holes"


@scenario()
def killed_at_random_moments_it_loses_nothing(kind):
    return killed(kind, compactions=False)


@scenario(long=True)
def killed_at_random_moments_while_history_is_compacted_away(kind):
    return killed(kind, compactions=True)


# What changes a file or a folder, or tells somebody.
CHANGES = ("write,pwrite64,pwritev,fsync,fdatasync,sync_file_range,rename,renameat,renameat2,unlink,unlinkat,ftruncate,mkdir,mkdirat,link,linkat,"
           "sendto,sendmsg")


def straced(keeper, arguments, out, inject=()):
    """A command of the keeper with every thread of it traced; the process is the keeper's own."""
    return spawn([tool("strace"), "-D", "-f", "-q", "-o", str(out), "-e", f"trace={CHANGES}", "-e", "signal=none", *inject, KEEPER, "--config",
                  str(keeper.config), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ended(process, out, seconds=120):
    """Its exit status, once the tracer wrote down the end, too."""
    code = process.wait(timeout=seconds)
    if code == 0:
        wait_for("the end of the trace", lambda: re.search(rf"^{process.pid} +\+\+\+ ", out.read_text(errors="replace"), re.M))
    return code


def kill_at(call, number):
    """strace counts for each thread: the first one to come to its `number`th `call` takes the process along."""
    return ["-e", f"inject={call}:signal=SIGKILL:when={number}"]


def calls_of(trace):
    """[(call, number)]: what some thread did `number` times at least."""
    counts = {}
    for line in trace.read_text(errors="replace").splitlines():
        thread, _, rest = line.partition(" ")
        call = rest.strip().partition("(")[0]
        if call in CHANGES.split(","):
            counts[thread, call] = counts.get((thread, call), 0) + 1
    return sorted({(call, number) for (_, call), most in counts.items() for number in range(1, most + 1)})


@scenario(quick=("engram",))
def a_backup_is_killed_at_each_of_its_changes(kind):
    """Each write, sync, rename and removal of a whole `backup` in turn is its last. Afterwards what was there is there, nothing half is taken for a
    backup, and the next backup is whole."""
    with rig(kind, segment=0) as r:
        r.client.put("/first", "1")
        known = {r.keeper.json("backup")["revision"]}
        trace = r.folder / "strace"
        assert ended(straced(r.keeper, ["backup"], trace), trace) == 0, trace.read_text()[-2000:]
        calls = calls_of(trace)
        assert {"rename", "fsync"} & {call for call, _ in calls} and len(calls) > 20, calls
        chosen = calls if ALL else sorted(rng("moments").sample(calls, 5))
        killed = 0
        for call, number in chosen:
            revision = r.client.put("/tick", f"{call} {number}")
            code = ended(straced(r.keeper, ["backup"], trace, kill_at(call, number)), trace)
            assert code in (0, -signal.SIGKILL), (call, number, code)
            killed += code != 0
            listed = {o["last_revision"] for o in r.keeper.json("list")}
            assert known <= listed, f"killed at {call} {number}, a backup is gone: {known - listed}"
            verified = r.keeper.json("verify", "--all", "--deep")
            assert verified["ok"], (call, number, verified)
            known.add(r.keeper.json("backup")["revision"])
            assert revision in known
        # Threads share the work differently each time, and not each comes as far as in the run that was traced.
        assert killed >= len(chosen) * 0.6, f"only {killed} of {len(chosen)} runs were killed"
        verified = r.keeper.json("verify", "--all", "--deep")
        assert verified["ok"] and not verified["strangers"], verified
        left = [p for p in r.keeper.state_dir.rglob("*") if p.is_file() and ("spool" in p.parts or "scratch" in p.parts)]
        assert not left, left
        folder, _ = r.keeper.restore("latest", "after")
        compare(r.client.state()[1], r.on(folder).client().state()[1], "after the kills")
        return f"{killed} kills at {len(chosen)} of {len(calls)} changes"


@scenario(kinds=("engram",), long=True)
def a_daemon_is_killed_at_its_changes(kind):
    """The same of `run`: the archive, the spool, the stores and the log, each from the start of the daemon on."""
    with rig(kind, stores=2) as r:
        load = Load(r.member, "load", threads=1, records=100, compactions=False)
        trace = r.folder / "strace"
        r.keeper.log_start = 0
        r.keeper.log_path.touch()
        r.keeper.daemon = straced(r.keeper, ["run"], trace)
        wait_for("the keeper to guard", r.keeper.guards, seconds=60)
        r.keeper.archived(load.newest())
        r.keeper.daemon.send_signal(signal.SIGTERM)
        assert ended(r.keeper.daemon, trace) == 0
        calls = [(call, number) for call, number in calls_of(trace) if number <= 40]
        chosen = rng("moments").sample(calls, min(len(calls), 60 if ALL else 5))
        killed = 0
        for call, number in chosen:
            process = straced(r.keeper, ["run"], trace, kill_at(call, number))
            try:
                killed += ended(process, trace, seconds=10) == -signal.SIGKILL
            except subprocess.TimeoutExpired:  # what it does only once it did, as making folders, does not come again
                process.kill()
                ended(process, trace)
        assert killed >= len(chosen) / 2, f"only {killed} of {len(chosen)} daemons were killed"
        r.keeper.start()
        load.until(load.done + 50).finish()
        last = last_change(r, load)
        r.keeper.stop()
        r.keeper.ok("verify", "--all", "--deep")
        windows = r.keeper.windows()
        assert len(windows) == 1 and not windows[0]["holes"] and len(windows[0]["windows"]) == 1, windows
        for store in ("store0", "store1"):
            folder, _ = r.keeper.restore(last, f"from-{store}", "--from", store, "--no-bump")
            check_restored(r, load, last, folder)
        return f"{killed} kills at {len(chosen)} of {len(calls)} changes"
