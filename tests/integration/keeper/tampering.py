"""What somebody with write access to a store can do to it, and what `verify` says then."""
import base64
import hashlib
import json
import shutil

from rig import DAMAGED, OK, Keeper, compare, rig, rng, scenario


def chunk_of(records, signature):
    return b"".join(records) + signature


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def one_line(line, change):
    fact = json.loads(line)
    change(fact)
    return (json.dumps(fact, separators=(",", ":"), sort_keys=True) + "\n").encode()


@scenario()
def tampering_is_found_and_named(kind):
    with rig(kind, segment=0) as r:
        for i in range(4):
            r.client.put("/k", str(i))
            r.keeper.ok("backup")
        r.client.put("/k", "last")
        r.keeper.ok("backup")
        store = r.keeper.store(0)
        kept = r.folder / "kept"
        shutil.copytree(store, kept)
        r.keeper.ok("verify", "--all")
        chunks = [p for p in r.keeper.objects(kind="log") if p.name != "head.json"]
        head = next(p for p in r.keeper.objects(kind="log") if p.name == "head.json")
        fulls = r.keeper.objects(kind="fulls")
        assert len(chunks) >= 3 and len(fulls) == 5, (chunks, fulls)
        old_head = head.read_bytes()
        forger = Keeper(r.folder / "forger", r.keeper.endpoints, segment=0)
        forger.configure(stores=r.keeper.stores)

        def fresh():
            shutil.rmtree(store)
            shutil.copytree(kept, store)

        def removed(path):
            return lambda: path.unlink()

        def renamed(path, to):
            return lambda: path.rename(to)

        def edited(path, number, change):
            def do():
                lines = lines_of(path)
                lines[number] = one_line(lines[number], change)
                path.write_bytes(b"".join(lines))
            return do

        def without_line(path, number):
            def do():
                lines = lines_of(path)
                del lines[number]
                path.write_bytes(b"".join(lines))
            return do

        def swapped(a, b):
            def do():
                one, other = a.read_bytes(), b.read_bytes()
                a.write_bytes(other)
                b.write_bytes(one)
            return do

        def rechained():
            """A record edited, and every digest after it made right again: only the signature knows."""
            path = chunks[-1]
            lines = lines_of(path)
            records, signature = lines[:-1], lines[-1]
            records[-1] = one_line(records[-1], lambda f: f.__setitem__("at", "2020-01-01T00:00:00.000000000Z"))
            path.write_bytes(chunk_of(records, signature))

        def appended():
            path = chunks[-1]
            lines = lines_of(path)
            fact = json.loads(lines[-2])
            fact["seq"] += 1
            fact["previous"] = hashlib.sha256(lines[-2]).hexdigest()
            first = fact["seq"]
            forged = (json.dumps(fact, separators=(",", ":"), sort_keys=True) + "\n").encode()
            (path.parent / f"{first:016x}-{first:016x}.jsonl").write_bytes(chunk_of([forged], lines[-1]))

        def whole_forged_log():
            # By somebody who has the bucket and the public keys, under the same writer's name.
            assert forger.run("backup").code == OK
            theirs = next(p for p in store.rglob("head.json") if p != head)
            shutil.copytree(theirs.parent, r.folder / "their-log")
            for p in head.parent.iterdir():
                p.unlink()
            for p in (r.folder / "their-log").iterdir():
                shutil.copy(p, head.parent / p.name)
            shutil.rmtree(theirs.parent.parent)
            shutil.rmtree(r.folder / "their-log")

        def tail_cut():
            # The last chunks go; the head still speaks of them.
            chunks[-1].unlink()

        def tail_cut_and_old_head_forged():
            chunks[-1].unlink()
            line, signature = lines_of(head)
            head.write_bytes(one_line(line, lambda f: f.__setitem__("seq", f["seq"] - 1)) + signature)

        middle = chunks[len(chunks) // 2]
        cases = [
            ("the newest full removed", removed(fulls[-1]), fulls[-1].name),
            ("the oldest full removed", removed(fulls[0]), fulls[0].name),
            ("two fulls exchanged", swapped(fulls[0], fulls[1]), fulls[0].name),
            ("a full renamed", renamed(fulls[1], fulls[1].with_name("0" * 16 + fulls[1].name[16:])), fulls[1].name),
            ("the first chunk removed", removed(chunks[0]), "record 1"),
            ("a chunk in the middle removed", removed(middle), "record"),
            ("two chunks exchanged", swapped(chunks[0], middle), chunks[0].name),
            ("a chunk renamed", renamed(middle, middle.with_name("f" * 16 + "-" + "f" * 16 + ".jsonl")), "record"),
            ("a record edited", edited(middle, 0, lambda f: f["fact"].__setitem__("stored_bytes", 1) if "stored_bytes" in f["fact"]
                                       else f["fact"].__setitem__("why", "x")), middle.name),
            ("a record removed", without_line(chunks[0], 0), chunks[0].name),
            ("a signature removed", without_line(chunks[0], -1), chunks[0].name),
            ("a record edited and the chain mended", rechained, chunks[-1].name),
            ("a record appended", appended, "log/"),
            ("the tail cut", tail_cut, "tail"),
            ("the tail cut and the head edited", tail_cut_and_old_head_forged, "head.json"),
            ("the head removed", removed(head), "head.json"),
            ("the whole log forged with another key", whole_forged_log, "trusted"),
        ]
        for what, do, named in cases:
            fresh()
            do()
            found = r.keeper.run("verify", "--all")
            assert found.code == DAMAGED, f"{what}: not found: {found}"
            assert named in found.out, f"{what}: `{named}` is not named: {found}"
        fresh()
        r.keeper.ok("verify", "--all")
        return f"{len(cases)} kinds of tampering found and named"


@scenario(kinds=("engram",))
def an_object_of_another_cluster_is_no_backup_of_this_one(kind):
    """Swapped between clusters by somebody who has the bucket."""
    with rig(kind, segment=0) as r:
        r.client.put("/mine", "1")
        r.keeper.ok("backup")
        other = r.folder / "other"
        with rig(kind, segment=0) as s:
            s.client.put("/theirs", "2")
            s.keeper.configure(recipients=r.keeper.recipients)
            s.keeper.ok("backup")
            shutil.copytree(s.keeper.store(0), other)
        mine = r.keeper.objects(kind="fulls")[0]
        theirs = next(p for p in other.rglob("*.age"))
        data = mine.read_bytes()
        mine.write_bytes(theirs.read_bytes())
        r.keeper.fails(DAMAGED, "restore", "--data-dir", str(r.folder / "x"))
        assert r.keeper.run("verify").code == DAMAGED
        mine.write_bytes(data)
        # Its whole folder, log and all, laid beside ours: signed by a stranger.
        shutil.copytree(next((other / "prod").iterdir()), r.keeper.store(0) / "prod" / next((other / "prod").iterdir()).name)
        found = r.keeper.run("verify")
        assert found.code == DAMAGED and "trusted" in found.out, found
        folder, _ = r.keeper.restore("latest", "mine")
        assert "/mine" in r.on(folder).client().state()[1]
