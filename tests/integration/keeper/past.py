"""Looking back: a key that was deleted by mistake."""
import json

from rig import DAMAGED, HOLE, USAGE, Load, rig, scenario


@scenario(quick=("engram", "etcd"))
def a_deleted_key_is_found_and_shown(kind):
    with rig(kind) as r:
        r.keeper.start()
        key = "/registry/configmaps/shop/prices"
        lease = r.client.grant(5000)
        created = r.client.put(key, "first")
        changed = r.client.put(key, "second", lease)
        load = Load(r.member, "noise", compactions=False).until(80).finish()
        deleted = r.client.delete(key)
        again = r.client.put("/registry/configmaps/shop/other", "o")
        r.keeper.archived(again)
        history = r.keeper.json("history", key)
        assert [(h["revision"], h["change"]) for h in history] == [(created, "created"), (changed, "changed"), (deleted, "deleted")], history
        assert history[1]["lease"] == lease and history[0]["bytes"] == len("first"), history
        for entry in history:
            assert entry["not_before"] <= entry["not_after"], entry
        text = r.keeper.ok("history", key).out
        assert f"get --at {deleted - 1} {key}" in text, text
        got = r.keeper.json("get", "--at", str(deleted - 1), key)
        assert (got["value"], got["create_revision"], got["mod_revision"], got["version"], got["lease"]) == ("second", created, changed, 2, lease), got
        assert r.keeper.ok("get", "--at", str(created), key).out == "first\n"
        r.keeper.fails(USAGE, "get", "--at", str(deleted), key)
        by_time = r.keeper.json("get", "--at", history[1]["not_after"], key)
        assert by_time["value"] == "second" and by_time["revision"] >= changed, by_time
        difference = r.keeper.json("diff", str(deleted - 1), str(again), "--prefix", "/registry/configmaps/")
        assert {(d["change"], d["key"]) for d in difference} == {("deleted", key), ("created", "/registry/configmaps/shop/other")}, difference
        exported = [json.loads(line) for line in r.keeper.ok("export", "--at", str(deleted - 1), "--prefix", "/registry/configmaps/").out.splitlines()]
        assert [(e["key"], e["value"]) for e in exported] == [(key, "second")], exported
        whole = r.keeper.ok("export", "--at", str(again)).out.splitlines()
        assert len(whole) == len(r.client.state(again)[1]), len(whole)
        yaml = r.keeper.ok("history", key, "-o", "yaml").out
        assert f'"revision": {deleted}' in yaml, yaml
        left = [p for p in (r.keeper.state_dir / "past").rglob("*") if p.is_file()] if (r.keeper.state_dir / "past").exists() else []
        assert not left, f"readable copies are left behind: {left}"
        return f"{len(load.acked)} changes around it"


@scenario(kinds=("engram",))
def the_audit_log_says_who_asked_for_what(kind):
    with rig(kind, segment=0) as r:
        r.client.put("/a", "1")
        r.keeper.ok("backup")
        r.keeper.ok("get", "/a")
        r.keeper.ok("list")
        r.keeper.fails(HOLE, "restore", "--to", "999", "--data-dir", str(r.folder / "x"))
        told = r.keeper.json("audit")
        ended = [(e["command"], e["outcome"]) for e in told if e["outcome"]]
        assert [outcome for _, outcome in ended] == ["exit status 0", "exit status 0", "exit status 4"], told
        for (command, _), words in zip(ended, ("backup", "get /a", "restore --to 999")):
            assert words in command, told
        assert all(e["who"] for e in told) and not any(" list" in e["command"] for e in told), told
        log = next(p for p in r.keeper.state_dir.iterdir() if "audit" in p.name and p.is_file() and p.read_bytes())
        assert log.stat().st_mode & 0o077 == 0
        lines = log.read_bytes().splitlines(keepends=True)
        for what, changed in (("taken out", lines[:1] + lines[2:]), ("edited", [lines[0], lines[1].replace(b"backup", b"verify"), *lines[2:]])):
            assert changed != lines, what
            log.write_bytes(b"".join(changed))
            r.keeper.fails(DAMAGED, "audit")
