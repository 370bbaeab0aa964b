"""The keeper may be killed at any instant."""
from rig import ALL, Load, check_restored, compare, rig, rng, scenario, wait_for
import time


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
        last = r.client.put("/last", "x")
        load.records[last] = r.client.state()[1]
        r.keeper.archived(last)
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
