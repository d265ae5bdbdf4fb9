// Runs Google's Node clients against a running localcloud. The argument is its
// localcloud.json. It prints one line per step and stops with an error at the first step
// that fails.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {Firestore, FieldValue} from '@google-cloud/firestore';
import {Storage} from '@google-cloud/storage';

const cloud = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const step = async (name, run) => {
  await run();
  console.log('ok', name);
};

const db = new Firestore({projectId: 'smoke'}); // finds FIRESTORE_EMULATOR_HOST
const col = db.collection('people');

await step('firestore: set, get, update with increment', async () => {
  await col.doc('ada').set({name: 'Ada', born: 1815, tags: ['math']});
  await col.doc('ada').update({visits: FieldValue.increment(2), tags: FieldValue.arrayUnion('code')});
  const d = (await col.doc('ada').get()).data();
  assert.deepEqual(d, {name: 'Ada', born: 1815, tags: ['math', 'code'], visits: 2});
});
await step('firestore: create refuses what exists', async () => {
  await assert.rejects(col.doc('ada').create({}), {code: 6});
});
await step('firestore: batch and query', async () => {
  const b = db.batch();
  for (let i = 0; i < 10; i++) b.set(col.doc('p' + i), {n: i});
  await b.commit();
  const s = await col.where('n', '>=', 5).orderBy('n', 'desc').limit(3).get();
  assert.deepEqual(s.docs.map(d => d.get('n')), [9, 8, 7]);
  assert.equal((await col.where('n', '>=', 5).count().get()).data().count, 5);
});
await step('firestore: transactions lose no update', async () => {
  const ref = col.doc('counter');
  await ref.set({n: 0});
  await Promise.all(Array.from({length: 5}, () => db.runTransaction(async tx => {
    const n = (await tx.get(ref)).get('n');
    tx.update(ref, {n: n + 1});
  }, {maxAttempts: 20})));
  assert.equal((await ref.get()).get('n'), 5);
});
await step('firestore: a listener sees a change', async () => {
  const ref = col.doc('watched');
  await new Promise((resolve, reject) => {
    const stop = ref.onSnapshot(s => {
      if (!s.exists) ref.set({here: true}).catch(reject);
      else { stop(); resolve(); }
    }, reject);
  });
});
await db.terminate();

// The key file signs; tokens come from the local cloud itself.
const storage = new Storage({projectId: 'smoke', apiEndpoint: cloud.storageApiUrl, keyFilename: cloud.keyFile});
const bucket = storage.bucket(cloud.buckets[0]);

await step('storage: save and download', async () => {
  await bucket.file('a/hello.txt').save('hello', {contentType: 'text/plain', metadata: {metadata: {who: 'node'}}});
  const [b] = await bucket.file('a/hello.txt').download();
  assert.equal(b.toString(), 'hello');
  const [m] = await bucket.file('a/hello.txt').getMetadata();
  assert.equal(m.contentType, 'text/plain');
  assert.equal(m.metadata.who, 'node');
});
await step('storage: resumable upload in chunks', async () => {
  const body = Buffer.alloc(3 * 256 * 1024 + 5, 'x');
  await bucket.file('a/big').save(body, {resumable: true, chunkSize: 256 * 1024});
  const [b] = await bucket.file('a/big').download();
  assert.ok(b.equals(body));
});
await step('storage: precondition', async () => {
  await assert.rejects(bucket.file('a/hello.txt').save('again', {preconditionOpts: {ifGenerationMatch: 0}}), {code: 412});
});
await step('storage: list, copy, compose, delete', async () => {
  await bucket.file('a/hello.txt').copy(bucket.file('b/copy'));
  await bucket.combine([bucket.file('a/hello.txt'), bucket.file('b/copy')], bucket.file('b/both'));
  const [both] = await bucket.file('b/both').download();
  assert.equal(both.toString(), 'hellohello');
  const [files] = await bucket.getFiles({prefix: 'b/'});
  assert.deepEqual(files.map(f => f.name), ['b/both', 'b/copy']);
  await bucket.file('b/copy').delete();
  assert.deepEqual(await bucket.file('b/copy').exists(), [false]);
});

// Signed URLs point to the public listener.
const signer = new Storage({projectId: 'smoke', apiEndpoint: cloud.storageUrl, keyFilename: cloud.keyFile});
const sign = async (name, action) => (await signer.bucket(cloud.buckets[0]).file(name).getSignedUrl({
  version: 'v4', action, expires: Date.now() + 600_000}))[0];

await step('storage: signed PUT and GET', async () => {
  const put = await fetch(await sign('c/ä b.mp4', 'write'), {method: 'PUT', body: 'film', headers: {'Content-Type': 'video/mp4'}});
  assert.equal(put.status, 200, await put.text());
  const get = await fetch(await sign('c/ä b.mp4', 'read'), {headers: {Range: 'bytes=1-2'}});
  assert.equal(get.status, 206);
  assert.equal(await get.text(), 'il');
});
await step('storage: a signed URL for another object is refused', async () => {
  const url = (await sign('c/one', 'write')).replace('c/one', 'c/two');
  assert.equal((await fetch(url, {method: 'PUT', body: 'x'})).status, 403);
});
console.log('all steps passed');
