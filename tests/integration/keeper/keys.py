"""Who can open what, and that stock tools can."""
import json
import subprocess

from rig import DAMAGED, KEY, OK, ROOT, USAGE, Load, compare, program, rig, rng, scenario, tool


def backed_up(r):
    r.keeper.start()
    load = Load(r.member, "load", compactions=False).until(120).finish()
    load.records[r.client.revision()] = r.client.state()[1]
    r.keeper.archived(r.client.revision())
    r.keeper.ok("status")
    r.keeper.stop()
    r.keeper.ok("backup")
    return r.client.state()


@scenario(kinds=("engram",))
def wrong_and_missing_keys_are_told(kind):
    with rig(kind) as r:
        revision, state = backed_up(r)
        target = str(r.folder / "x")
        good = r.keeper.identity
        stranger = r.folder / "stranger"
        assert r.keeper.plain("keys", "generate", "--identity", str(stranger)).code == OK
        for identity, said in ((stranger, "identit"), (None, "identity"), (r.folder / "gone", "gone")):
            r.keeper.configure(identity=identity)
            told = r.keeper.fails(KEY, "restore", "--data-dir", target)
            assert said in told.err and len(told.err.splitlines()) == 1, told
            assert not (r.folder / "x").exists()
            r.keeper.fails(KEY, "get", "/registry/pods/01")
        listed = r.keeper.configure(identity=None) or r.keeper.json("list")
        assert listed, "listing needs no identity"
        r.keeper.ok("verify", "--all")
        # One of two recipients is enough.
        for identity in (r.keeper.recovery, good):
            r.keeper.configure(identity=identity)
            folder, report = r.keeper.restore("latest", f"with-{identity.name}", "--no-bump")
            assert report["revision"] == revision
        compare(state, r.on(folder).client().state()[1], "with either identity")
        # The key that signs: without it nothing is believed, and what to do is said.
        sign = r.keeper.sign
        other = r.folder / "other-sign"
        assert r.keeper.plain("keys", "generate", "--signing", str(other)).code == OK
        r.keeper.configure(sign=other)
        r.keeper.fails(DAMAGED, "verify") if r.keeper.run("verify").code == DAMAGED else r.keeper.fails(KEY, "verify")
        r.keeper.configure(sign=other, more=f"trusted_signers: [\"{r.keeper.signer}\"]")
        r.keeper.ok("verify")
        r.keeper.configure(sign=other, more="")
        told = r.keeper.run("restore", "--data-dir", str(r.folder / "believed"), "--trust-any-signer")
        assert told.code == OK and "believed unseen" in told.err, told
        r.keeper.configure(sign=sign)
        # Keys are never written over.
        again = r.keeper.plain("keys", "generate", "--identity", str(good))
        assert again.code == USAGE and "AGE-SECRET-KEY" in good.read_text(), again
        good.chmod(0o644)
        r.keeper.configure(identity=good)
        assert "644" in r.keeper.fails(KEY, "restore", "--data-dir", target).err


def piped(*commands, into=None):
    data = None
    for command in commands:
        done = subprocess.run(command, input=data, capture_output=True)
        assert done.returncode == 0, f"{command}: {done.stderr.decode()[-500:]}"
        data = done.stdout
    if into is not None:
        into.write_bytes(data)
    return data


@scenario(quick=("engram", "etcd"))
def stock_tools_open_fulls_and_segments(kind):
    age, zstd, protoc = tool("age"), tool("zstd"), tool("protoc")
    etcdutl = program("etcd", "etcdutl")
    with rig(kind) as r:
        revision, state = backed_up(r)
        identity = str(r.keeper.recovery)
        full = r.keeper.objects(kind="fulls")[-1]
        db = r.folder / "snapshot.db"
        piped([age, "-d", "-i", identity, str(full)], [zstd, "-d"], into=db)
        described = next(o for o in r.keeper.json("list") if o["name"].endswith(full.name))
        status = json.loads(piped([etcdutl, "snapshot", "status", str(db), "-w", "json"]))
        assert status["revision"] == revision == described["last_revision"], (status, revision)
        proof = [p["hash"] for p in described["proofs"] if p["method"] == "hash-of-file" or "hash" in p["method"]]
        assert proof, described
        plain = subprocess.run(["sha256sum", str(db)], capture_output=True, text=True).stdout.split()[0]
        assert plain == described["plain_sha256"], "the log states the digest of the plain bytes"
        piped([etcdutl, "snapshot", "restore", str(db), "--data-dir", str(r.folder / "by-etcdutl")])
        member = r.on(r.folder / "by-etcdutl")
        got = member.client().state()[1]
        compare(state, got, "by etcdutl")
        segments = r.keeper.objects(kind="archive")
        events = 0
        for segment in segments:
            text = piped([age, "-d", "-i", identity, str(segment)], [zstd, "-d"],
                         [protoc, f"-I{ROOT}", "--decode=engramkeeper.Segment", "proto/keeper.proto"]).decode()
            assert text.startswith("header {") and "\nfooter {" in text, text[:200]
            events += text.count("\n  events {")
        stated = sum(o["events"] for o in r.keeper.json("list", "--all"))
        assert events == stated > 100, (events, stated)
        return f"{len(segments)} segments with {events} events, a full with {len(state)} keys"


@scenario(kinds=("engram",))
def without_encryption_zstd_alone_opens(kind):
    zstd = tool("zstd")
    with rig(kind, encryption=False) as r:
        revision, state = backed_up(r)
        full = r.keeper.objects(kind="fulls")[-1]
        assert full.name.endswith(".db.zst"), full
        db = piped([zstd, "-dc", str(full)])
        assert b"/registry/pods" in db
        folder, report = r.keeper.restore("latest", "plain", "--no-bump")
        compare(state, r.on(folder).client().state()[1], "without encryption")


@scenario(kinds=("engram",))
def nothing_readable_lies_in_the_stores(kind):
    """Of values and keys, nothing: neither in objects nor in logs, nor in what the keeper printed or keeps in its state directory."""
    with rig(kind, more="log_level: debug") as r:
        r.client.put("/registry/secrets/needle-key", "needle-value")
        r.keeper.start()
        r.keeper.archived(r.client.put("/registry/secrets/needle-key", "needle-value-2"))
        r.keeper.stop()
        r.keeper.ok("backup")
        secret = r.keeper.identity.read_text().split("\n")[1].encode()
        for path in [*r.keeper.objects(), *(p for p in r.keeper.state_dir.rglob("*") if p.is_file()), r.keeper.log_path]:
            data = path.read_bytes()
            for needle in (b"needle", secret):
                assert needle not in data, f"{needle} lies open in {path}"
            if path != r.keeper.log_path:
                assert path.stat().st_mode & 0o077 == 0, f"{path} can be read by others"


@scenario(quick=("engram", "etcd"))
def rewrapped_backups_open_with_the_new_key_alone(kind):
    with rig(kind, stores=2) as r:
        revision, state = backed_up(r)
        old, fresh = r.keeper.identity, r.folder / "fresh"
        assert r.keeper.plain("keys", "generate", "--identity", str(fresh)).code == OK
        recipient = fresh.read_text().split(": ")[1].split("\n")[0]
        before = r.keeper.json("list", "--all")
        names = {str(p.relative_to(r.keeper.store(n))) for n in range(2) for p in r.keeper.objects(n)}
        # Who has only the new key can open nothing yet: each object is named, none is touched.
        r.keeper.configure(identity=fresh, recipients=[recipient])
        refused = r.keeper.run("keys", "rewrap", "--yes", "-o", "json")
        assert refused.code == KEY and len(refused.json["failed"]) == len(before), refused
        assert {str(p.relative_to(r.keeper.store(0))) for p in r.keeper.objects(0)} <= names
        r.keeper.configure(identity=old)
        planned = r.keeper.run("keys", "rewrap")
        assert planned.code == OK and "--yes" in planned.out and "does not revoke" in planned.err, planned
        assert {str(p.relative_to(r.keeper.store(0))) for p in r.keeper.objects(0)} <= names, "a plan changes nothing"
        done = r.keeper.json("keys", "rewrap", "--yes")
        assert done["rewrapped"] == len(before) and not done["failed"] and not done["left"], done
        assert r.keeper.json("keys", "rewrap")["objects"] == []
        after = r.keeper.json("list", "--all")
        assert [(o["first_revision"], o["last_revision"], o["plain_sha256"], o["proven"]) for o in after] == [
            (o["first_revision"], o["last_revision"], o["plain_sha256"], o["proven"]) for o in before]
        assert all(o["recipients"] == [recipient] and sorted(o["stores"]) == ["store0", "store1"] for o in after), after
        left = {str(p.relative_to(r.keeper.store(n))) for n in range(2) for p in r.keeper.objects(n)} & {o["name"] for o in before}
        assert not left, left
        r.keeper.configure(identity=fresh)
        r.keeper.ok("verify", "--all", "--deep")
        folder, report = r.keeper.restore("latest", "with-fresh", "--no-bump")
        assert report["revision"] == revision
        compare(state, r.on(folder).client().state()[1], "with the new key")
        r.keeper.configure(identity=old)
        r.keeper.fails(KEY, "restore", "--data-dir", str(r.folder / "x"))
        # `copy` knows them by their new names, and the daemon goes on after them.
        r.keeper.configure(identity=fresh)
        for path in r.keeper.objects(1, kind="fulls"):
            path.unlink()
        assert r.keeper.json("copy")["copied"] >= 1
        r.keeper.ok("verify", "--all", "--deep")
        r.keeper.ok("describe", before[-1]["name"])
        r.keeper.start()
        last = r.client.put("/after", "1")
        r.keeper.archived(last)
        r.keeper.stop()
        r.keeper.ok("verify", "--all", "--deep")
        assert len(r.keeper.living()["windows"]) == 1
        return f"{len(before)} objects"


@scenario(kinds=("engram",))
def a_rewrap_that_was_killed_goes_on(kind):
    with rig(kind, stores=2) as r:
        revision, state = backed_up(r)
        fresh = r.folder / "fresh"
        assert r.keeper.plain("keys", "generate", "--identity", str(fresh)).code == OK
        r.keeper.configure(recipients=[fresh.read_text().split(": ")[1].split("\n")[0]])
        kills = 0
        for more in range(1, 5):
            there = len(r.keeper.objects(0))
            process = r.keeper.begin("keys", "rewrap", "--yes")
            # It is over in a blink: no pause between two looks.
            while process.poll() is None and len(r.keeper.objects(0)) < there + more:
                pass
            kills += process.poll() is None
            process.kill()
            process.wait()
            process.stdout.close()
        assert kills > 0, "it was never killed while it worked"
        r.keeper.ok("keys", "rewrap", "--yes")
        r.keeper.configure(identity=fresh)
        verified = r.keeper.json("verify", "--all", "--deep")
        assert verified["ok"] and not verified["strangers"], verified
        stated = {o["name"] for o in r.keeper.json("list", "--all")}
        for number in range(2):
            there = {str(p.relative_to(r.keeper.store(number))) for p in r.keeper.objects(number) if "log" not in p.parts}
            assert there == stated, (there - stated, stated - there)
        folder, _ = r.keeper.restore("latest", "after", "--no-bump")
        compare(state, r.on(folder).client().state()[1], "after the kills")
        return f"{kills} kills"
