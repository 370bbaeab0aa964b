//! Takes the Rust client through keys, transactions, leases and watches on the
//! endpoint given as argument, and prints "ok" only if every answer was right.

use etcd_client::{
    Client, Compare, CompareOp, DeleteOptions, Error, EventType, GetOptions, KeyValue,
    LeaseTimeToLiveOptions, PutOptions, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
    WatchFilterType, WatchOptions, WatchStream,
};
use std::fmt::Debug;
use std::time::{Duration, Instant, SystemTime};

fn check(right: bool, what: &str, seen: impl Debug) {
    if !right {
        eprintln!("wrong: {what}: {seen:?}");
        std::process::exit(1);
    }
}

fn same<T: PartialEq + Debug>(seen: T, wanted: T, what: &str) {
    if seen != wanted {
        check(false, &format!("{what}, instead of {wanted:?}"), seen);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn values(pairs: &[KeyValue]) -> Vec<String> {
    pairs.iter().map(|pair| text(pair.value())).collect()
}

fn revisions(pair: &KeyValue) -> (i64, i64, i64) {
    (pair.create_revision(), pair.mod_revision(), pair.version())
}

async fn put(client: &mut Client, key: &str, value: &str) -> Result<i64, Error> {
    Ok(client.put(key, value, None).await?.header().unwrap().revision())
}

async fn keys(client: &mut Client, prefix: &str) -> Result<(), Error> {
    let a = format!("{prefix}a");
    let first = put(client, &a, "1").await?;
    let got = client.get(a.as_str(), None).await?;
    check(got.count() == 1 && got.kvs().len() == 1, "get of one key", &got);
    let pair = &got.kvs()[0];
    same((text(pair.key()), text(pair.value())), (a.clone(), "1".into()), "key and value");
    same(revisions(pair), (first, first, 1), "revisions of a new key");
    let second = client.put(a.as_str(), "2", Some(PutOptions::new().with_prev_key())).await?;
    same(second.header().unwrap().revision(), first + 1, "revision after a second put");
    same(second.prev_key().map(|pair| text(pair.value())), Some("1".into()), "previous value");
    let got = client.get(a.as_str(), None).await?;
    same(revisions(&got.kvs()[0]), (first, first + 1, 2), "revisions of a changed key");
    let at = |revision| Some(GetOptions::new().with_revision(revision));
    let earlier = client.get(a.as_str(), at(first)).await?;
    same(values(earlier.kvs()), vec!["1".into()], "value of an earlier revision");
    let future = client.get(a.as_str(), at(first + 1000)).await;
    check(future.is_err(), "a future revision was answered", &future);

    for name in ["b", "c", "d"] {
        put(client, &format!("{prefix}{name}"), name).await?;
    }
    let all = || GetOptions::new().with_prefix();
    let options = all().with_limit(2).with_sort(SortTarget::Key, SortOrder::Descend);
    let page = client.get(prefix, Some(options)).await?;
    same(values(page.kvs()), vec!["d".into(), "c".into()], "descending page");
    check(page.more() && page.count() == 4, "first page", &page);
    let count = client.get(prefix, Some(all().with_count_only())).await?;
    check(count.count() == 4 && count.kvs().is_empty(), "count only", &count);
    let bare = client.get(prefix, Some(all().with_keys_only())).await?;
    same(values(bare.kvs()), vec![String::new(); 4], "keys only");

    let options = DeleteOptions::new().with_range(format!("{prefix}d")).with_prev_key();
    let deleted = client.delete(format!("{prefix}b"), Some(options)).await?;
    same(deleted.deleted(), 2, "deleted range");
    same(values(deleted.prev_kvs()), vec!["b".into(), "c".into()], "deleted values");
    let again = client.delete(format!("{prefix}b"), None).await?;
    same(again.deleted(), 0, "a deleted key deleted again");
    same(client.get(format!("{prefix}b"), None).await?.count(), 0, "a deleted key");
    Ok(())
}

fn read_of(answer: &TxnOpResponse) -> Vec<(String, i64)> {
    match answer {
        TxnOpResponse::Get(got) => {
            got.kvs().iter().map(|pair| (text(pair.value()), pair.mod_revision())).collect()
        }
        other => {
            check(false, "a read in a transaction", other);
            vec![]
        }
    }
}

async fn transactions(client: &mut Client, prefix: &str) -> Result<(), Error> {
    let (a, b) = (format!("{prefix}a"), format!("{prefix}b"));
    let before = put(client, &a, "1").await?;
    let txn = Txn::new()
        .when([
            Compare::value(a.as_str(), CompareOp::Equal, "1"),
            Compare::mod_revision(a.as_str(), CompareOp::Equal, before),
            Compare::version(b.as_str(), CompareOp::Equal, 0),
        ])
        .and_then([
            TxnOp::put(a.as_str(), "2", None),
            TxnOp::put(b.as_str(), "3", None),
            TxnOp::get(prefix, Some(GetOptions::new().with_prefix())),
        ])
        .or_else([TxnOp::get(a.as_str(), None)]);
    let done = client.txn(txn).await?;
    let answers = done.op_responses();
    check(done.succeeded() && answers.len() == 3, "true comparison", &done);
    same(done.header().unwrap().revision(), before + 1, "revision of a transaction");
    let wanted = vec![("2".into(), before + 1), ("3".into(), before + 1)];
    same(read_of(&answers[2]), wanted, "a read after writes in a transaction");

    let txn = Txn::new()
        .when([Compare::create_revision(a.as_str(), CompareOp::Equal, 0)])
        .and_then([TxnOp::delete(a.as_str(), None)])
        .or_else([TxnOp::get(a.as_str(), None)]);
    let done = client.txn(txn).await?;
    check(!done.succeeded(), "false comparison", &done);
    same(read_of(&done.op_responses()[0]), vec![("2".into(), before + 1)], "else branch");
    same(done.header().unwrap().revision(), before + 1, "revision after a branch that only reads");
    let twice = Txn::new()
        .and_then([TxnOp::put(a.as_str(), "x", None), TxnOp::put(a.as_str(), "y", None)]);
    let refused = client.txn(twice).await;
    check(refused.is_err(), "two writes of one key in a transaction were accepted", &refused);
    Ok(())
}

async fn leases(client: &mut Client, prefix: &str) -> Result<(), Error> {
    let held = format!("{prefix}long");
    let long = client.lease_grant(60, None).await?;
    check(long.ttl() == 60 && long.id() != 0, "granted lease", &long);
    let attach = |id| Some(PutOptions::new().with_lease(id));
    client.put(held.as_str(), "x", attach(long.id())).await?;
    let got = client.get(held.as_str(), None).await?;
    same(got.kvs()[0].lease(), long.id(), "lease of a key");
    let with_keys = Some(LeaseTimeToLiveOptions::new().with_keys());
    let left = client.lease_time_to_live(long.id(), with_keys).await?;
    check(left.granted_ttl() == 60 && left.ttl() > 50 && left.ttl() <= 60, "time to live", &left);
    same(left.keys().to_vec(), vec![held.clone().into_bytes()], "keys of a lease");
    let (mut keeper, mut answers) = client.lease_keep_alive(long.id()).await?;
    keeper.keep_alive().await?;
    same(answers.message().await?.map(|answer| answer.ttl()), Some(60), "keep alive");
    let listed = client.leases().await?;
    check(listed.leases().iter().any(|one| one.id() == long.id()), "a lease is not listed", &listed);
    client.lease_revoke(long.id()).await?;
    same(client.get(held.as_str(), None).await?.count(), 0, "key of a revoked lease");
    let left = client.lease_time_to_live(long.id(), None).await?;
    same(left.ttl(), -1, "time to live of a revoked lease");
    let refused = client.put(held.as_str(), "x", attach(long.id())).await;
    check(refused.is_err(), "a put with a revoked lease was accepted", &refused);

    // The server may lengthen a short lease, so its answer is the measure.
    let key = format!("{prefix}short");
    let short = client.lease_grant(1, None).await?;
    let put = client.put(key.as_str(), "x", attach(short.id())).await?;
    let granted = Instant::now();
    let from = put.header().unwrap().revision() + 1;
    let options = WatchOptions::new().with_start_revision(from);
    let mut stream = client.watch(key.as_str(), Some(options)).await?;
    same(client.get(key.as_str(), None).await?.count(), 1, "key of a live lease");
    let events = collect(&mut stream, &key, 1).await?;
    let lived = granted.elapsed().as_secs_f64();
    same(events[0].0.clone(), "delete".into(), "expiry");
    check(lived > short.ttl() as f64 - 0.5, "seconds until the lease expired", lived);
    same(client.get(key.as_str(), None).await?.count(), 0, "key of an expired lease");
    Ok(())
}

type Change = (String, String, String, String, i64);

async fn collect(stream: &mut WatchStream, prefix: &str, count: usize) -> Result<Vec<Change>, Error> {
    let mut seen = vec![];
    while seen.len() < count {
        let Some(response) = stream.message().await? else {
            check(false, "the watch ended, after", &seen);
            break;
        };
        check(!response.canceled(), "the watch was cancelled", response.cancel_reason());
        for event in response.events() {
            let pair = event.kv().unwrap();
            let kind = if event.event_type() == EventType::Put { "put" } else { "delete" };
            seen.push((
                kind.into(),
                text(&pair.key()[prefix.len()..]),
                text(pair.value()),
                event.prev_kv().map(|pair| text(pair.value())).unwrap_or_default(),
                pair.mod_revision(),
            ));
        }
    }
    Ok(seen)
}

async fn watches(client: &mut Client, prefix: &str) -> Result<(), Error> {
    let a = format!("{prefix}a");
    let options = WatchOptions::new().with_prefix().with_prev_key();
    // Answered only once the server has made the watch.
    let mut live = client.watch(prefix, Some(options.clone())).await?;
    let first = put(client, &a, "1").await?;
    put(client, &a, "2").await?;
    client.delete(a.as_str(), None).await?;
    let both = Txn::new().and_then([
        TxnOp::put(format!("{prefix}b"), "3", None),
        TxnOp::put(format!("{prefix}c"), "4", None),
    ]);
    client.txn(both).await?;
    let change = |kind: &str, key: &str, value: &str, previous: &str, revision: i64| -> Change {
        (kind.into(), key.into(), value.into(), previous.into(), revision)
    };
    let wanted = vec![
        change("put", "a", "1", "", first),
        change("put", "a", "2", "1", first + 1),
        change("delete", "a", "", "2", first + 2),
        change("put", "b", "3", "", first + 3),
        change("put", "c", "4", "", first + 3),
    ];
    same(collect(&mut live, prefix, 5).await?, wanted.clone(), "live watch");
    // The same changes must come from a watch that starts in the past.
    let mut past = client.watch(prefix, Some(options.clone().with_start_revision(first))).await?;
    same(collect(&mut past, prefix, 5).await?, wanted, "past watch");
    let options = options.with_start_revision(first).with_filters([WatchFilterType::NoPut]);
    let mut filtered = client.watch(prefix, Some(options)).await?;
    same(collect(&mut filtered, prefix, 1).await?[0].0.clone(), "delete".into(), "filtered watch");
    Ok(())
}

async fn steps(endpoint: &str) -> Result<(), Error> {
    let mut client = Client::connect([endpoint], None).await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let prefix = format!("/interop/rust/{}/", now.as_nanos());
    keys(&mut client, &format!("{prefix}kv/")).await?;
    transactions(&mut client, &format!("{prefix}txn/")).await?;
    leases(&mut client, &format!("{prefix}lease/")).await?;
    watches(&mut client, &format!("{prefix}watch/")).await?;
    client.delete(prefix, Some(DeleteOptions::new().with_prefix())).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let Some(endpoint) = std::env::args().nth(1) else {
        eprintln!("usage: client ENDPOINT");
        std::process::exit(2);
    };
    match tokio::time::timeout(Duration::from_secs(60), steps(&endpoint)).await {
        Ok(Ok(())) => println!("ok"),
        Ok(Err(error)) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
        Err(_) => {
            eprintln!("error: no end within 60 s");
            std::process::exit(1);
        }
    }
}
