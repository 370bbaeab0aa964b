"""What goes wrong ends in one clear line and a documented exit status."""
import time

from rig import HOLE, OK, UNREACHABLE, UNSAFE, USAGE, Keeper, Tls, b64, rig, scenario, scratch
from storage import Proxy


def one_line(run):
    lines = run.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("engram-keeper: "), f"not one clear line: {run}"
    return lines[0]


@scenario(kinds=(None,))
def faults_of_the_configuration_have_a_line_number():
    with scratch() as folder:
        keeper = Keeper(folder / "k", "http://127.0.0.1:1")
        good = keeper.config.read_text()

        def with_line(old, new):
            assert old in good, old
            text = good.replace(old, new, 1)
            keeper.config.write_text(text)
            number = next(i for i, line in enumerate(text.splitlines(), 1) if new.split("\n")[-1].strip() in line)
            return keeper.fails(USAGE, "list"), number

        policy = "{like: critical, full_every: 1h, segment_every: 200ms}"
        for old, new, said in [
                ("listen:", "listem:", "listem"),
                (policy, "{like: critical, full_every: 1h, segment_evry: 200ms}", "segment_evry"),
                (policy, "{like: critical, full_every: 10s, segment_every: 1h}", "segment_every"),
                (policy, "{like: critical, full_every: 1ms}", "full_every"),
                (policy, "reckless", "reckless"),
                ("endpoints: [\"http://127.0.0.1:1\"]", "endpoints: []", "endpoints"),
                ("endpoints: [\"http://127.0.0.1:1\"]", "endpoints: [\"127.0.0.1\"]", "127.0.0.1"),
                ("\"type\": \"file\"", "\"type\": \"tape\"", "tape"),
                ("recipients: [\"age1", "recipients: [\"age2", "age"),
                ("name: prod", "name: a/b", "a/b")]:
            run, number = with_line(old, new)
            assert f"{keeper.config}:{number}: " in run.err and said in run.err, f"{new}: {run}"
        for text, said in (("", ":1:"), ("[", ":"), ("a: 1\na: 2\n", "a"), ("x" * 2_000_000, "1 MiB"), ("\0", ":")):
            keeper.config.write_text(text)
            assert said in keeper.fails(USAGE, "list").err
        keeper.config.unlink()
        one_line(keeper.fails(USAGE, "list"))


@scenario(kinds=("engram",))
def usage_errors_are_one_line(kind):
    with rig(kind, segment=0) as r:
        r.client.put("/a", "1")
        nothing = r.keeper.fails(HOLE, "restore", "--data-dir", str(r.folder / "x"))
        assert "nothing" in one_line(nothing), nothing
        r.keeper.ok("backup")
        for words in (["restore"], ["restore", "--data-dir", "/x", "--to", "yesterday"], ["restore", "--data-dir", "/x", "--no-bump", "--bump-to", "9"],
                      ["restore", "--data-dir", str(r.folder / "x"), "--from", "nowhere"], ["restore", "--data-dir", str(r.folder / "x"),
                       "--timeline", "x"], ["list", "-o", "xml"], ["describe"], ["describe", "nothing-of-that-name"], ["verify", "--percent", "101"],
                      ["get"], ["get", "/not-there"], ["history"], ["diff", "1"], ["keep", "77777"], ["annotate", "1"], ["keys", "generate"],
                      ["status", "nobody"]):
            run = r.keeper.fails(USAGE, *words)
            one_line(run)
        for words in (["no-such-command"], ["list", "--no-such-flag"], ["restore", "--to"]):
            r.keeper.fails(USAGE, *words)
        for words in ([], ["help"], ["restore", "--help"], ["version"]):
            assert r.keeper.plain(*words).code == OK, words
        target = r.folder / "there"
        target.mkdir()
        refused = r.keeper.fails(UNSAFE, "restore", "--data-dir", str(target))
        assert "exists already" in one_line(refused) and not list(target.iterdir()), refused
        r.keeper.fails(USAGE, "restore", "--data-dir", str(r.folder / "y"), "--bump-to", "1")
        assert not (r.folder / "y").exists()


@scenario(kinds=("engram",), long=True)
def a_cluster_that_does_not_answer_is_unreachable(kind):
    with rig(kind, segment=0) as r:
        r.client.put("/a", "1")
        r.keeper.ok("backup")
        r.keeper.ok("check")
        r.member.kill()
        began = time.monotonic()
        assert r.member.endpoint in one_line(r.keeper.fails(UNREACHABLE, "backup"))
        assert time.monotonic() - began < 60
        checked = r.keeper.run("check")
        assert checked.code == UNREACHABLE and "FAILED" in checked.out, checked
        # What needs no cluster goes on.
        r.keeper.ok("list")
        r.keeper.ok("verify", "--all")
        r.keeper.restore("latest", "meanwhile")
        (r.keeper.store()).rename(r.folder / "away")
        assert "store0" in one_line(r.keeper.fails(UNREACHABLE, "list"))


@scenario(kinds=("etcd",), quick=("etcd",))
def a_user_without_the_root_role_is_told_what_it_lacks(kind):
    with rig(kind, segment=0) as r:
        call = r.client.call
        call("/v3/auth/role/add", {"name": "reader"})
        call("/v3/auth/role/grant", {"name": "reader", "perm": {"permType": "READ", "key": b64("\0"), "range_end": b64("\0")}})
        for user, role in (("root", "root"), ("backup", "reader")):
            call("/v3/auth/user/add", {"name": user, "password": "not-a-secret"})
            call("/v3/auth/user/grant", {"user": user, "role": role})
        call("/v3/auth/enable")
        password = r.folder / "password"
        password.write_text("not-a-secret")
        password.chmod(0o600)
        wrong = r.folder / "wrong"
        wrong.write_text("another")
        wrong.chmod(0o600)
        user = "user: {{name: {}, password_file: {}}}"
        r.keeper.configure(cluster_more=user.format("backup", password))
        checked = r.keeper.run("check")
        assert checked.code != OK and "root" in checked.out, checked
        refused = r.keeper.run("backup")
        assert refused.code != OK and len(refused.err.strip().splitlines()) == 1, refused
        r.keeper.configure(cluster_more=user.format("root", wrong))
        refused = r.keeper.run("backup")
        assert refused.code != OK and "another" not in refused.err, refused
        r.keeper.configure(cluster_more="")
        refused = r.keeper.run("backup")
        assert refused.code != OK and "user" in refused.err, refused
        r.keeper.configure(cluster_more=user.format("root", password))
        r.keeper.ok("check")
        r.keeper.ok("backup")


@scenario(long=True)
def r71_a_snapshot_that_stalls_is_given_up(kind):
    """At half of it the link goes dead without a word."""
    with rig(kind, segment=0) as r:
        for i in range(60):
            r.client.put(f"/big/{i}", "x" * 100_000)
        proxy = Proxy(int(r.member.client_port), limit=3_000_000)
        try:
            direct = r.keeper.endpoints
            r.keeper.configure(endpoints=[f"http://127.0.0.1:{proxy.port}"])
            stalled = r.keeper.fails(UNREACHABLE, "backup")
            assert proxy.stalled.is_set(), "the snapshot came through"
            assert r.keeper.json("list") == [] and not r.keeper.objects(kind="fulls"), "half a snapshot was kept"
            left = [p for p in r.keeper.state_dir.rglob("*") if p.is_file() and p.stat().st_size > 100_000]
            assert not left, left
            r.keeper.configure(endpoints=direct)
            r.keeper.ok("backup")
            return f"given up after {stalled.seconds:.0f} s: {stalled.err.strip()}"
        finally:
            proxy.close()


@scenario(kinds=("engram",), long=True)
def certificates_that_do_not_serve_are_named(kind):
    with rig(kind, tls=True, segment=0) as r:
        r.client.put("/a", "1")
        r.keeper.ok("backup")
        good = r.keeper.tls
        stranger = Tls(r.folder / "stranger")
        own = good.ca

        class Mixed:
            ca = own

            @staticmethod
            def file(name):
                return stranger.file(name)

        r.keeper.configure(tls=Mixed)  # a client certificate of another CA
        one_line(r.keeper.fails(UNREACHABLE, "backup"))
        r.keeper.configure(tls=stranger)  # whose CA did not make the server's certificate
        told = one_line(r.keeper.fails(UNREACHABLE, "backup"))
        assert "certificate" in told, told
        missing = Tls.__new__(Tls)
        missing.folder, missing.ca = r.folder / "none", own
        r.keeper.configure(tls=missing)
        run = r.keeper.run("backup")
        assert run.code != OK and "none/client" in one_line(run), run
        r.keeper.configure(tls=good)
        r.keeper.ok("backup")
