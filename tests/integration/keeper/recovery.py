"""Commands for the day on which something is lost: copy, plan, apply, drill, sandbox, bundle."""
import contextlib
import json
import os
import shutil
import signal
import stat

from rig import (DAMAGED, ENGRAM, KEEPER, KMS_PLUGIN, OK, UNPROVEN, UNSAFE, Client, Load, Member, compare, free_port, last_change, program, rig, rng,
                 scenario, subprocess, spawn, wait_for)
from storage import damage


def archived(r, changes=120):
    r.keeper.start()
    load = Load(r.member, "load", compactions=False).until(changes).finish()
    last = last_change(r, load)
    r.keeper.stop()
    return load, last


@scenario(kinds=("engram",))
def copy_heals_what_one_store_lost(kind):
    with rig(kind, stores=2) as r:
        load, last = archived(r)
        r.keeper.ok("verify", "--all", "--deep")
        segment, full = r.keeper.objects(0, "archive")[-1], r.keeper.objects(1, "fulls")[-1]
        damage(r, "flipped", segment, None)
        damage(r, "missing", full, None)
        assert r.keeper.run("verify", "--all").code == DAMAGED
        healed = r.keeper.json("copy", "--check")
        assert healed["failed"] == [] and healed["healed"] + healed["copied"] >= 2, healed
        r.keeper.ok("verify", "--all", "--deep")
        # A store that is new gets everything.
        third = r.folder / "third"
        third.mkdir()
        r.keeper.configure(stores=[*r.keeper.stores, {"name": "third", "type": "file", "path": str(third)}])
        copied = r.keeper.json("copy")
        assert copied["copied"] == len(r.keeper.json("list", "--all")) and not copied["failed"], copied
        folder, _ = r.keeper.restore(last, "from-third", "--from", "third", "--no-bump")
        compare(load.records[last], r.on(folder).client().state()[1], "from the new store")


@scenario()
def plan_and_apply_bring_a_lost_cluster_back(kind):
    """Three hosts (folders) for etcd, one for engram, which has no clusters of several members yet."""
    names = ["m1", "m2", "m3"] if kind == "etcd" else ["m1"]
    with rig(kind) as r:
        load, last = archived(r)
        members = [Member(kind, r.folder / f"host-{name}" / "data") for name in names]
        urls = {name: f"http://127.0.0.1:{member.peer_port}" for name, member in zip(names, members)}
        words = ["plan", "--members", ",".join(f"{n}={u}" for n, u in urls.items()), "--out", str(r.folder / "plan.json")]
        alive = r.keeper.json(*words)
        assert alive["alive"] and not (r.folder / "plan.json").exists(), alive
        text = r.keeper.ok(*words).out
        assert "member remove" in text and "Do not restore" in text, text
        r.member.kill()
        plan = r.keeper.json(*words)
        assert plan["revision"] == last and plan["bump_to"] >= last + 1_000_000 and plan["initial_cluster"], plan
        r.member.start()
        apply = ["apply", "--plan", str(r.folder / "plan.json"), "--name"]
        refused = r.keeper.fails(UNSAFE, *apply, "m1", "--data-dir", members[0].data_dir)
        assert "still answers" in refused.err and not os.path.exists(members[0].data_dir), refused
        r.member.wipe()
        for name, member in zip(names, members):
            r.keeper.ok(*apply, name, "--data-dir", member.data_dir)
            r.keeper.fails(UNSAFE, *apply, name, "--data-dir", member.data_dir)
        for name, member in zip(names, members):
            command = [word.replace("m1=", "").replace("--name=m1", f"--name={name}") for word in member.command()]
            command = [w for w in command if not w.startswith("--initial-cluster=")]
            command += [f"--initial-cluster={plan['initial_cluster']}", f"--initial-cluster-token={plan['token']}"]
            r.members.append(member)
            with open(member.log_path, "ab") as log:
                member.process = spawn(command, stdout=log, stderr=log)
        for member in members:
            wait_for("a recovered member", member.answers)
            revision, state = member.client().state()
            assert revision >= last + 1_000_000, revision
            compare(load.records[last], state, "recovered")
        hashes = {member.client().hash_kv(last + 1_000_000 if kind == "none" else 0)[2] for member in members}
        assert len(hashes) == 1, hashes
        message = members[-1].client().watch("/", last + 1, lambda m: m.get("canceled") or m.get("events"))
        assert message.get("canceled") and int(message.get("compact_revision", 0)) > last, message
        listed = members[0].client().call("/v3/cluster/member/list")["members"]
        assert sorted(m["name"] for m in listed) == names, listed
        return f"{len(names)} members at revision {revision}"


@scenario()
def a_drill_restores_and_proves(kind):
    with rig(kind) as r:
        archived(r)
        for server in [ENGRAM] if kind == "engram" else [program("etcd", "etcd")]:
            for to in ("latest", "random"):
                report = r.keeper.json("drill", "run", "--server", server, "--to", to)
                assert all(phase["passed"] for phase in report["phases"]), report
        history = r.keeper.json("drill", "history")
        assert [h["result"] for h in history] == ["passed", "passed"], history
        r.keeper.ok("verify", "--all", "--deep")
        failed = r.keeper.run("drill", "run", "--server", "/bin/false")
        assert failed.code != OK, failed
        left = [p for p in r.keeper.state_dir.rglob("*.db") if "drill" in str(p)]
        assert not left, f"readable copies are left behind: {left}"
        return f"{history[0]['rto_seconds']:.1f} s"


@scenario()
def a_sandbox_serves_the_past(kind):
    server = ENGRAM if kind == "engram" else program("etcd", "etcd")
    with rig(kind) as r:
        load, last = archived(r)
        revision = sorted(load.records)[len(load.records) // 2]
        process = spawn([KEEPER, "--config", str(r.keeper.config), "sandbox", "--at", str(revision), "--server", server, "-o", "json"],
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            text = ""
            while "}" not in text:
                line = process.stdout.readline()
                assert line, process.stderr.read()
                text += line
            told = json.loads(text)
            assert told["revision"] == revision, told
            now, state = Client(told["endpoint"].split("//")[1]).state()
            assert now == revision
            compare(load.records[revision], state, "in the sandbox")
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == OK
        finally:
            process.kill()
            process.wait()
        left = [p for p in r.keeper.state_dir.iterdir() if p.name.startswith("sandbox")]
        assert not left, left


@scenario(kinds=("engram",))
def a_bundle_comes_back_with_its_modes(kind):
    with rig(kind) as r:
        files = r.folder / "kubernetes"
        (files / "pki").mkdir(parents=True)
        (files / "pki/sa.key").write_text("needle-in-a-bundle")
        (files / "pki/sa.key").chmod(0o600)
        (files / "enc.yaml").write_text("kind: EncryptionConfiguration\n")
        (files / "enc.yaml").chmod(0o640)
        os.symlink("sa.key", files / "pki/link")
        r.keeper.configure(cluster_more=f"bundle: {{paths: [{files}], every: 1h}}")
        taken = r.keeper.run("bundle", "take", "-o", "json")
        assert taken.code in (OK, DAMAGED) and taken.json["entries"] >= 4, taken
        r.keeper.ok("verify", "--all", "--deep")
        for path in r.keeper.objects():
            assert b"needle" not in path.read_bytes(), path
        back = r.folder / "back"
        r.keeper.ok("bundle", "extract", "--into", str(back))
        got = back / str(files).lstrip("/")
        assert (got / "pki/sa.key").read_text() == "needle-in-a-bundle"
        assert stat.S_IMODE((got / "pki/sa.key").stat().st_mode) == 0o600 and stat.S_IMODE((got / "enc.yaml").stat().st_mode) == 0o640
        assert os.readlink(got / "pki/link") == "sa.key"
        (got / "enc.yaml").write_text("another")
        r.keeper.fails(UNSAFE, "bundle", "extract", "--into", str(back))
        assert (got / "enc.yaml").read_text() == "another"
        r.keeper.ok("bundle", "extract", "--into", str(back), "--overwrite")
        r.keeper.start()
        asked = r.keeper.run("bundle", "take")  # the daemon takes it, and finds the same in it
        assert asked.code == DAMAGED and "names no resources" in asked.out, asked


ENCRYPTION = """apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
  - resources: [secrets]
    providers:
      - aescbc: {{keys: [{{name: {name}, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}}]}}
      - identity: {{}}
"""


@scenario(kinds=("engram",))
def r68_plan_tells_when_no_bundle_decrypts_what_is_restored(kind):
    """The key was rotated between the backup and the restore: the newest bundle has the new one only."""
    with rig(kind, segment=0) as r:
        config = r.folder / "enc.yaml"
        r.keeper.configure(cluster_more=f"bundle: {{paths: [{config}], every: 1h}}")

        def holds(key):
            config.write_text(ENCRYPTION.format(name=key))
            r.client.put("/registry/secrets/default/token", f"k8s:enc:aescbc:v1:{key}:sealed")
            return r.keeper.json("backup")["revision"]

        def planned(revision):
            r.member.kill()
            try:
                run = r.keeper.ok("plan", "--to", str(revision), "--members", "m1=http://10.0.0.1:2380", "-o", "json")
                return run.json, run.err, r.keeper.ok("plan", "--to", str(revision), "--members", "m1=http://10.0.0.1:2380").out
            finally:
                r.member.start()
                r.client = r.member.client()

        first = holds("key1")
        plan, err, _ = planned(first)
        assert plan["bundle"] == "" and "key1" in plan["undecryptable"][0] and "no bundle" in err, (plan, err)
        r.keeper.ok("bundle", "take")
        second = holds("key2")
        r.keeper.ok("bundle", "take")
        old, new = (o["name"] for o in r.keeper.json("list") if o["kind"] == "bundle")
        for revision, bundle in ((first, old), (second, new)):
            plan, err, runbook = planned(revision)
            assert plan["bundle"] == bundle and plan["undecryptable"] == [] and "decrypt" not in err, (plan, err)
            assert f"--point {bundle}" in runbook, runbook
        third = r.client.put("/registry/secrets/default/token", "k8s:enc:aescbc:v1:key3:sealed")
        assert r.keeper.json("backup")["revision"] == third
        plan, err, runbook = planned(third)
        assert plan["bundle"] == new and "key3" in plan["undecryptable"][0] and "key3" in err, (plan, err)
        assert "NOBODY CAN READ" in runbook, runbook
        # Without an identity it cannot be told, which is said.
        r.keeper.configure(identity=None)
        plan, err, _ = planned(second)
        assert "cannot be told" in err, err


@scenario(kinds=("engram",))
def a_kms_plugin_is_tried_and_its_key_recorded(kind):
    with rig(kind, segment=0) as r:
        files, socket = r.folder / "kubernetes", r.folder / "kms.sock"
        files.mkdir()
        endpoint = f"unix://{socket}"
        (files / "enc.yaml").write_text("kind: EncryptionConfiguration\nresources:\n  - resources: [secrets]\n    providers:\n"
                                        f"      - kms: {{apiVersion: v2, name: vault, endpoint: \"{endpoint}\"}}\n")
        (files / "apiserver.yaml").write_text("kind: Pod\nspec:\n  containers:\n    - command: [kube-apiserver, "
                                              f"\"--etcd-servers={r.member.url}\"]\n      image: registry.k8s.io/kube-apiserver:v1.37.2\n")
        r.keeper.configure(cluster_more=f"bundle: {{paths: [{files}], every: 1h}}")
        r.client.put("/registry/secrets/default/a", "k8s:enc:kms:v2:vault:sealed")

        @contextlib.contextmanager
        def plugin(healthz):
            process = spawn([KMS_PLUGIN, str(socket), "key-7", healthz], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                assert process.stdout.readline() == "ready\n"
                yield process
            finally:
                process.stdin.close()
                process.wait(timeout=30)

        def faulty(what):
            checked = r.keeper.run("bundle", "check", "-o", "json")
            found = [f for f in checked.json["findings"] if f["level"] == "FAILED"]
            assert checked.code == DAMAGED and len(found) == 1 and what in found[0]["text"] and "vault" in found[0]["text"], checked
            drilled = r.keeper.run("drill", "run", "-o", "json", "--server", ENGRAM)
            phase = next(p for p in drilled.json["phases"] if p["name"] == "decryption configuration")
            assert drilled.code == UNPROVEN and not phase["passed"] and what in phase["text"], drilled

        with plugin("ok") as process:
            assert "key-7" in r.keeper.ok("bundle", "check").out
            r.keeper.start()
            wait_for("a bundle and a full", lambda: {"bundle", "full"} <= {o["kind"] for o in r.keeper.json("list")})
            r.keeper.stop()
            objects = {o["kind"]: o for o in r.keeper.json("list")}
            assert objects["bundle"]["kms"] == [{"provider": "vault", "version": "v2", "endpoint": endpoint, "key_id": "key-7"}], objects
            assert {objects[kind]["kubernetes_version"] for kind in ("bundle", "full")} == {"v1.37.2"}, objects
            drilled = r.keeper.json("drill", "run", "--server", ENGRAM)
            phase = next(p for p in drilled["phases"] if p["name"] == "decryption configuration")
            assert phase["passed"] and "`vault` answers, with key key-7" in phase["text"], drilled
            process.kill()
        faulty("does not answer")
        socket.unlink()
        with plugin("the HSM is sealed"):
            faulty("not well: the HSM is sealed")
