package engram.interop;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.KV;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.Lease;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.kv.GetResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.DeleteOption;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.LeaseOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchEvent;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/**
 * Takes the Java client through keys, transactions, leases and watches on the endpoint given as
 * argument, and prints "ok" only if every answer was right.
 */
public final class Client {
  private static final long SECONDS = 30;

  private final io.etcd.jetcd.Client client;
  private final KV kv;

  private Client(io.etcd.jetcd.Client client) {
    this.client = client;
    this.kv = client.getKVClient();
  }

  private static void check(boolean right, String what, Object seen) {
    if (!right) {
      System.err.println("wrong: " + what + ": " + seen);
      System.exit(1);
    }
  }

  private static void same(Object seen, Object wanted, String what) {
    check(seen.equals(wanted), what + ", instead of " + wanted, seen);
  }

  private static <T> T get(CompletableFuture<T> future) throws Exception {
    return future.get(SECONDS, TimeUnit.SECONDS);
  }

  private static void refused(CompletableFuture<?> future, String what) throws Exception {
    try {
      check(false, what, get(future));
    } catch (ExecutionException expected) {
      // The server said no, as it should.
    }
  }

  private static ByteSequence bytes(String text) {
    return ByteSequence.from(text, UTF_8);
  }

  private static List<Long> revisions(KeyValue pair) {
    return List.of(pair.getCreateRevision(), pair.getModRevision(), pair.getVersion());
  }

  private static List<String> values(List<KeyValue> pairs) {
    return pairs.stream().map(pair -> pair.getValue().toString(UTF_8)).toList();
  }

  private KeyValue one(String key) throws Exception {
    GetResponse answer = get(kv.get(bytes(key)));
    check(answer.getCount() == 1 && answer.getKvs().size() == 1, "get of one key", answer);
    return answer.getKvs().get(0);
  }

  private void keys(String prefix) throws Exception {
    String a = prefix + "a";
    long first = get(kv.put(bytes(a), bytes("1"))).getHeader().getRevision();
    KeyValue pair = one(a);
    same(pair.getKey().toString(UTF_8), a, "key");
    same(pair.getValue().toString(UTF_8), "1", "value");
    same(revisions(pair), List.of(first, first, 1L), "revisions of a new key");
    var second = get(kv.put(bytes(a), bytes("2"), PutOption.builder().withPrevKV().build()));
    same(second.getHeader().getRevision(), first + 1, "revision after a second put");
    same(second.getPrevKv().getValue().toString(UTF_8), "1", "previous value");
    same(revisions(one(a)), List.of(first, first + 1, 2L), "revisions of a changed key");
    var earlier = get(kv.get(bytes(a), GetOption.builder().withRevision(first).build()));
    same(values(earlier.getKvs()), List.of("1"), "value of an earlier revision");
    refused(
        kv.get(bytes(a), GetOption.builder().withRevision(first + 1000).build()),
        "a future revision was answered");

    for (String name : List.of("b", "c", "d")) {
      get(kv.put(bytes(prefix + name), bytes(name)));
    }
    var page =
        get(
            kv.get(
                bytes(prefix),
                GetOption.builder()
                    .isPrefix(true)
                    .withLimit(2)
                    .withSortField(GetOption.SortTarget.KEY)
                    .withSortOrder(GetOption.SortOrder.DESCEND)
                    .build()));
    same(values(page.getKvs()), List.of("d", "c"), "descending page");
    check(page.isMore() && page.getCount() == 4, "first page", page);
    var count =
        get(kv.get(bytes(prefix), GetOption.builder().isPrefix(true).withCountOnly(true).build()));
    check(count.getCount() == 4 && count.getKvs().isEmpty(), "count only", count);
    var bare =
        get(kv.get(bytes(prefix), GetOption.builder().isPrefix(true).withKeysOnly(true).build()));
    same(values(bare.getKvs()), List.of("", "", "", ""), "keys only");

    var deleted =
        get(
            kv.delete(
                bytes(prefix + "b"),
                DeleteOption.builder().withRange(bytes(prefix + "d")).withPrevKV(true).build()));
    same(deleted.getDeleted(), 2L, "deleted range");
    same(values(deleted.getPrevKvs()), List.of("b", "c"), "deleted values");
    same(get(kv.delete(bytes(prefix + "b"))).getDeleted(), 0L, "a deleted key deleted again");
    same(get(kv.get(bytes(prefix + "b"))).getCount(), 0L, "a deleted key");
  }

  private void transactions(String prefix) throws Exception {
    ByteSequence a = bytes(prefix + "a");
    ByteSequence b = bytes(prefix + "b");
    long before = get(kv.put(a, bytes("1"))).getHeader().getRevision();
    var done =
        get(
            kv.txn()
                .If(
                    new Cmp(a, Cmp.Op.EQUAL, CmpTarget.value(bytes("1"))),
                    new Cmp(a, Cmp.Op.EQUAL, CmpTarget.modRevision(before)),
                    new Cmp(b, Cmp.Op.EQUAL, CmpTarget.version(0)))
                .Then(
                    Op.put(a, bytes("2"), PutOption.DEFAULT),
                    Op.put(b, bytes("3"), PutOption.DEFAULT),
                    Op.get(bytes(prefix), GetOption.builder().isPrefix(true).build()))
                .Else(Op.get(a, GetOption.DEFAULT))
                .commit());
    check(done.isSucceeded(), "true comparison", done);
    same(done.getHeader().getRevision(), before + 1, "revision of a transaction");
    var seen = done.getGetResponses().get(0).getKvs();
    same(values(seen), List.of("2", "3"), "a read after writes in a transaction");
    same(seen.get(0).getModRevision(), before + 1, "revision of a write in a transaction");
    same(seen.get(1).getModRevision(), before + 1, "revision of a write in a transaction");
    done =
        get(
            kv.txn()
                .If(new Cmp(a, Cmp.Op.EQUAL, CmpTarget.createRevision(0)))
                .Then(Op.delete(a, DeleteOption.DEFAULT))
                .Else(Op.get(a, GetOption.DEFAULT))
                .commit());
    check(!done.isSucceeded(), "false comparison", done);
    same(values(done.getGetResponses().get(0).getKvs()), List.of("2"), "else branch");
    same(done.getHeader().getRevision(), before + 1, "revision after a branch that only reads");
    refused(
        kv.txn()
            .Then(
                Op.put(a, bytes("x"), PutOption.DEFAULT), Op.put(a, bytes("y"), PutOption.DEFAULT))
            .commit(),
        "two writes of one key in a transaction were accepted");
  }

  private void leases(String prefix) throws Exception {
    Lease leases = client.getLeaseClient();
    String held = prefix + "long";
    var granted = get(leases.grant(60));
    same(granted.getTTL(), 60L, "granted lease");
    var attach = PutOption.builder().withLeaseId(granted.getID()).build();
    get(kv.put(bytes(held), bytes("x"), attach));
    same(one(held).getLease(), granted.getID(), "lease of a key");
    var left =
        get(leases.timeToLive(granted.getID(), LeaseOption.builder().withAttachedKeys().build()));
    same(left.getGrantedTTL(), 60L, "granted time to live");
    check(left.getTTL() > 50 && left.getTTL() <= 60, "time to live", left);
    same(left.getKeys(), List.of(bytes(held)), "keys of a lease");
    same(get(leases.keepAliveOnce(granted.getID())).getTTL(), 60L, "keep alive");
    get(leases.revoke(granted.getID()));
    same(get(kv.get(bytes(held))).getCount(), 0L, "key of a revoked lease");
    same(
        get(leases.timeToLive(granted.getID(), LeaseOption.DEFAULT)).getTTL(),
        -1L,
        "time to live of a revoked lease");
    refused(
        kv.put(bytes(held), bytes("x"), attach), "a put with a revoked lease was accepted");

    // The server may lengthen a short lease, so its answer is the measure.
    ByteSequence key = bytes(prefix + "short");
    var brief = get(leases.grant(1));
    var put = get(kv.put(key, bytes("x"), PutOption.builder().withLeaseId(brief.getID()).build()));
    long start = System.nanoTime();
    BlockingQueue<WatchEvent> events = new LinkedBlockingQueue<>();
    var option = WatchOption.builder().withRevision(put.getHeader().getRevision() + 1).build();
    try (Watch.Watcher ignored =
        client.getWatchClient().watch(key, option, r -> events.addAll(r.getEvents()))) {
      same(get(kv.get(key)).getCount(), 1L, "key of a live lease");
      WatchEvent event = events.poll(SECONDS, TimeUnit.SECONDS);
      check(
          event != null && event.getEventType() == WatchEvent.EventType.DELETE, "expiry", event);
      double lived = (System.nanoTime() - start) / 1e9;
      check(lived > brief.getTTL() - 0.5, "seconds until the lease expired", lived);
    }
    same(get(kv.get(key)).getCount(), 0L, "key of an expired lease");
  }

  private void watches(String prefix) throws Exception {
    Watch watch = client.getWatchClient();
    BlockingQueue<WatchEvent> live = new LinkedBlockingQueue<>();
    BlockingQueue<WatchEvent> past = new LinkedBlockingQueue<>();
    CompletableFuture<Void> created = new CompletableFuture<>();
    var option =
        WatchOption.builder().isPrefix(true).withPrevKV(true).withCreateNotify(true).build();
    try (Watch.Watcher ignored =
        watch.watch(
            bytes(prefix),
            option,
            response -> {
              if (response.isCreatedNotify()) {
                created.complete(null);
              }
              live.addAll(response.getEvents());
            })) {
      get(created);
      ByteSequence a = bytes(prefix + "a");
      long first = get(kv.put(a, bytes("1"))).getHeader().getRevision();
      get(kv.put(a, bytes("2")));
      get(kv.delete(a));
      get(
          kv.txn()
              .Then(
                  Op.put(bytes(prefix + "b"), bytes("3"), PutOption.DEFAULT),
                  Op.put(bytes(prefix + "c"), bytes("4"), PutOption.DEFAULT))
              .commit());
      List<List<Object>> wanted =
          List.of(
              List.of("PUT", "a", "1", "", first),
              List.of("PUT", "a", "2", "1", first + 1),
              List.of("DELETE", "a", "", "2", first + 2),
              List.of("PUT", "b", "3", "", first + 3),
              List.of("PUT", "c", "4", "", first + 3));
      // The same changes must come from a watch that was there and from one
      // that starts in the past.
      same(collect(live, prefix, wanted.size()), wanted, "live watch");
      var fromFirst =
          WatchOption.builder().isPrefix(true).withPrevKV(true).withRevision(first).build();
      try (Watch.Watcher alsoIgnored =
          watch.watch(bytes(prefix), fromFirst, r -> past.addAll(r.getEvents()))) {
        same(collect(past, prefix, wanted.size()), wanted, "past watch");
      }
    }
  }

  private static List<List<Object>> collect(
      BlockingQueue<WatchEvent> events, String prefix, int count) throws Exception {
    List<List<Object>> seen = new ArrayList<>();
    while (seen.size() < count) {
      WatchEvent event = events.poll(SECONDS, TimeUnit.SECONDS);
      check(event != null, "a watch event did not come, after", seen);
      KeyValue pair = event.getKeyValue();
      seen.add(
          List.of(
              event.getEventType().toString(),
              pair.getKey().toString(UTF_8).substring(prefix.length()),
              pair.getValue().toString(UTF_8),
              event.getPrevKV() == null ? "" : event.getPrevKV().getValue().toString(UTF_8),
              pair.getModRevision()));
    }
    return seen;
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 1) {
      System.err.println("usage: client ENDPOINT");
      System.exit(2);
    }
    String prefix = "/interop/java/" + System.nanoTime() + "/";
    try (var connection = io.etcd.jetcd.Client.builder().endpoints(arguments[0]).build()) {
      Client steps = new Client(connection);
      steps.keys(prefix + "kv/");
      steps.transactions(prefix + "txn/");
      steps.leases(prefix + "lease/");
      steps.watches(prefix + "watch/");
      get(steps.kv.delete(bytes(prefix), DeleteOption.builder().isPrefix(true).build()));
    }
    System.out.println("ok");
    System.exit(0);
  }
}
