'use strict';
// Takes the Node.js client through keys, transactions, leases and watches on
// the endpoint given as argument, and prints "ok" only if every answer was
// right.

const { isDeepStrictEqual } = require('node:util');
const { Etcd3 } = require('etcd3');

function check(right, what, seen) {
  if (!right) {
    console.error(`wrong: ${what}:`, seen);
    process.exit(1);
  }
}

function same(seen, wanted, what) {
  check(isDeepStrictEqual(seen, wanted), `${what}, instead of ${JSON.stringify(wanted)}`, seen);
}

async function refused(promise, what) {
  const failed = await promise.then(() => false, () => true);
  check(failed, what, 'no error');
}

const revisions = (kv) => [Number(kv.create_revision), Number(kv.mod_revision), Number(kv.version)];

async function keys(client, prefix) {
  const a = `${prefix}a`;
  const first = Number((await client.put(a).value('1')).header.revision);
  let answer = await client.get(a).exec();
  same(answer.kvs[0].key.toString(), a, 'key');
  same(answer.kvs[0].value.toString(), '1', 'value');
  same(revisions(answer.kvs[0]), [first, first, 1], 'revisions of a new key');
  const previous = await client.put(a).value('2').getPrevious();
  same(previous.value.toString(), '1', 'previous value');
  answer = await client.get(a).exec();
  same(revisions(answer.kvs[0]), [first, first + 1, 2], 'revisions of a changed key');
  same(await client.get(a).revision(first).string(), '1', 'value of an earlier revision');
  await refused(client.get(a).revision(first + 1000).string(), 'a future revision was answered');

  for (const name of ['b', 'c', 'd']) await client.put(prefix + name).value(name);
  const page = await client.getAll().prefix(prefix).limit(2).sort('Key', 'Descend').exec();
  same([page.kvs.map((kv) => kv.value.toString()), page.more, Number(page.count)], [['d', 'c'], true, 4], 'descending page');
  same(await client.getAll().prefix(prefix).count(), 4, 'count');
  same(await client.getAll().prefix(prefix).keys(), ['a', 'b', 'c', 'd'].map((name) => prefix + name), 'keys only');
  const gone = await client.delete().range(client.range({ start: `${prefix}b`, end: `${prefix}d` })).getPrevious();
  same(gone.map((kv) => kv.value.toString()), ['b', 'c'], 'deleted range');
  same(Number((await client.delete().key(`${prefix}b`)).deleted), 0, 'a deleted key deleted again');
  same(await client.get(`${prefix}b`), null, 'a deleted key');
}

async function transactions(client, prefix) {
  const [a, b] = [`${prefix}a`, `${prefix}b`];
  const before = Number((await client.put(a).value('1')).header.revision);
  let done = await client.if(a, 'Value', '==', '1').and(a, 'Mod', '==', before).and(b, 'Version', '==', 0)
    .then(client.put(a).value('2'), client.put(b).value('3'), client.getAll().prefix(prefix))
    .else(client.get(a)).commit();
  check(done.succeeded && done.responses.length === 3, 'true comparison', done);
  same(Number(done.header.revision), before + 1, 'revision of a transaction');
  same(done.responses[2].response_range.kvs.map((kv) => [kv.value.toString(), Number(kv.mod_revision)]),
    [['2', before + 1], ['3', before + 1]], 'a read after writes in a transaction');
  done = await client.if(a, 'Create', '==', 0).then(client.delete().key(a)).else(client.get(a)).commit();
  check(!done.succeeded, 'false comparison', done);
  same(done.responses[0].response_range.kvs[0].value.toString(), '2', 'else branch');
  same(Number(done.header.revision), before + 1, 'revision after a branch that only reads');
  await refused(client.if(a, 'Version', '>', 0).then(client.put(a).value('x'), client.put(a).value('y')).commit(),
    'two writes of one key in a transaction were accepted');
}

async function leases(client, prefix) {
  const long = client.lease(60, { autoKeepAlive: false });
  const id = await long.grant();
  await long.put(`${prefix}long`).value('x');
  same((await client.get(`${prefix}long`).exec()).kvs[0].lease, id, 'lease of a key');
  const left = await client.leaseClient.leaseTimeToLive({ ID: id, keys: true });
  same([left.grantedTTL, left.keys.map(String)], ['60', [`${prefix}long`]], 'time to live and keys');
  check(Number(left.TTL) > 50 && Number(left.TTL) <= 60, 'time to live', left);
  same((await long.keepaliveOnce()).TTL, '60', 'keep alive');
  await long.revoke();
  same(await client.get(`${prefix}long`), null, 'key of a revoked lease');
  same((await client.leaseClient.leaseTimeToLive({ ID: id })).TTL, '-1', 'time to live of a revoked lease');
  await refused(client.put(`${prefix}long`).value('x').lease(id).exec(), 'a put with a revoked lease was accepted');

  // The server may lengthen a short lease, so its answer is the measure.
  const short = await client.leaseClient.leaseGrant({ TTL: 1 });
  const put = await client.put(`${prefix}short`).value('x').lease(short.ID);
  const granted = Date.now();
  const watcher = client.watch().key(`${prefix}short`).startRevision(String(Number(put.header.revision) + 1)).watcher();
  const expired = new Promise((resolve) => { watcher.once('delete', resolve); });
  same(await client.get(`${prefix}short`), 'x', 'key of a live lease');
  await expired;
  const lived = Date.now() - granted;
  check(lived > Number(short.TTL) * 1000 - 500, `milliseconds until a lease of ${short.TTL} s expired`, lived);
  same(await client.get(`${prefix}short`), null, 'key of an expired lease');
  await watcher.cancel();
}

// collect gathers events until there are as many as wanted. The handlers must
// be there before the watch is, or early events would be lost.
function collect(watcher, prefix, wanted) {
  return new Promise((resolve, reject) => {
    const seen = [];
    watcher.on('error', reject);
    watcher.on('data', (response) => {
      for (const event of response.events) {
        seen.push([event.type, event.kv.key.toString().slice(prefix.length), event.kv.value.toString(),
          event.prev_kv ? event.prev_kv.value.toString() : '', Number(event.kv.mod_revision)]);
      }
      if (seen.length >= wanted) resolve(seen);
    });
  });
}

async function watches(client, prefix) {
  const live = client.watch().prefix(prefix).withPreviousKV().watcher();
  const liveEvents = collect(live, prefix, 5);
  await new Promise((resolve) => { live.once('connected', resolve); });
  const first = Number((await client.put(`${prefix}a`).value('1')).header.revision);
  await client.put(`${prefix}a`).value('2');
  await client.delete().key(`${prefix}a`);
  await client.if(`${prefix}a`, 'Version', '==', 0)
    .then(client.put(`${prefix}b`).value('3'), client.put(`${prefix}c`).value('4')).commit();
  const wanted = [
    ['Put', 'a', '1', '', first],
    ['Put', 'a', '2', '1', first + 1],
    ['Delete', 'a', '', '2', first + 2],
    ['Put', 'b', '3', '', first + 3],
    ['Put', 'c', '4', '', first + 3],
  ];
  // The same changes must come from a watch that was there and from one that
  // starts in the past.
  const past = client.watch().prefix(prefix).withPreviousKV().startRevision(String(first)).watcher();
  const pastEvents = collect(past, prefix, 5);
  same(await liveEvents, wanted, 'live watch');
  same(await pastEvents, wanted, 'past watch');
  const filtered = client.watch().prefix(prefix).only('delete').startRevision(String(first)).watcher();
  same((await collect(filtered, prefix, 1)).map((event) => event[0]), ['Delete'], 'filtered watch');
  await Promise.all([live.cancel(), past.cancel(), filtered.cancel()]);
}

async function main() {
  if (process.argv.length !== 3) {
    console.error('usage: client ENDPOINT');
    process.exit(2);
  }
  const client = new Etcd3({ hosts: process.argv[2] });
  const prefix = `/interop/node/${process.hrtime.bigint()}/`;
  await keys(client, `${prefix}kv/`);
  await transactions(client, `${prefix}txn/`);
  await leases(client, `${prefix}lease/`);
  await watches(client, `${prefix}watch/`);
  await client.delete().prefix(prefix);
  client.close();
  console.log('ok');
}

main().catch((error) => {
  console.error('error:', error);
  process.exit(1);
});
