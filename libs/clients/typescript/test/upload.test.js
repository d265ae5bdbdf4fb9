// Uploads, against a storage that breaks.
import assert from "node:assert/strict";
import { createReadStream, mkdtempSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";
import { ConnectionError, Linkreel, UploadError, UploadGoneError } from "../dist/index.js";
import { lost, script } from "./server.js";

const content = Buffer.alloc(900_000, "0123456789");
const part = 256 << 10;

/** An upload session that keeps 1,000 bytes of the second part and loses the connection. */
function session(before = 0) {
  const got = { bytes: content.subarray(0, before), broken: false };
  got.answer = ({ headers, body }) => {
    const [, start, total] = /^bytes (\*|\d+)(?:-\d+)?\/(\*|\d+)$/.exec(headers["content-range"]);
    if (start !== "*") {
      if (Number(start) !== got.bytes.length) return [503, {}, ""];
      if (total === "*" && body.length % part !== 0) return [400, {}, "not a multiple"];
      if (!got.broken && got.bytes.length > 0) {
        got.broken = true;
        got.bytes = Buffer.concat([got.bytes, body.subarray(0, 1000)]);
        return lost;
      }
      got.bytes = Buffer.concat([got.bytes, body]);
    }
    if (total !== "*" && got.bytes.length === Number(total)) return [200, {}, ""];
    return [308, got.bytes.length ? { Range: `bytes=0-${got.bytes.length - 1}` } : {}, ""];
  };
  return got;
}

async function* pieces(of = content, size = 10_007) {
  for (let at = 0; at < of.length; at += size) yield new Uint8Array(of.subarray(at, at + size));
}
const path = () => {
  const file = join(mkdtempSync(join(tmpdir(), "linkreel-")), "clip.mp4");
  writeFileSync(file, content);
  return file;
};
const sources = {
  Blob: () => new Blob([content]), Uint8Array: () => new Uint8Array(content), path, URL: () => pathToFileURL(path()), "a stream of Node": () => createReadStream(path()),
  ReadableStream: () => new Blob([content]).stream(), iterable: () => pieces(), "one piece": () => pieces(content, content.length),
};

for (const [name, file] of Object.entries(sources)) {
  test(`${name}: a session goes on after a break`, async (t) => {
    const got = session(), s = await script(t, got.answer), steps = [];
    await s.api.upload({ resumableUploadUrl: s.url, uploadUrl: "http://127.0.0.1:1/" }, file(), { part, onProgress: (sent) => steps.push(sent) });
    assert.ok(got.bytes.equals(content) && got.broken);
    assert.deepEqual([steps.at(-1), steps.every((n, i) => i === 0 || n >= steps[i - 1])], [content.length, true]);
  });
  test(`${name}: a session that another program began is finished`, async (t) => {
    const got = session(part + 5), s = await script(t, got.answer);
    await s.api.upload({ resumableUploadUrl: s.url }, file(), { part });
    assert.ok(got.bytes.equals(content));
  });
  test(`${name}: without a session the file goes whole`, async (t) => {
    const s = await script(t, lost, [200, {}, ""]);
    await s.api.upload({ uploadUrl: s.url }, file());
    assert.ok(s.calls[1].body.equals(content));
  });
}

test("a stream whose length is a number of parts ends", async (t) => {
  const even = content.subarray(0, 3 * part);
  for (const size of [part, even.length, 999]) {
    const got = session(), s = await script(t, got.answer);
    await s.api.upload({ resumableUploadUrl: s.url }, pieces(even, size), { part });
    assert.ok(got.bytes.equals(even));
  }
});

test("a stream of many small pieces, whose memory is used again, arrives as it was", async (t) => {
  const whole = Buffer.alloc(4 << 20, "0123456789abcdef!"), piece = new Uint8Array(1024);
  async function* reused() { for (let at = 0; at < whole.length; at += 1024) { piece.set(whole.subarray(at, at + 1024)); yield piece; } }
  const got = session(), s = await script(t, got.answer);
  await s.api.upload({ resumableUploadUrl: s.url }, reused());
  assert.ok(got.bytes.equals(whole));
});

test("without a session, a stream that memory should not hold is refused before it is sent", async (t) => {
  const s = await script(t, [200, {}, ""]), piece = new Uint8Array(1 << 20);
  let read = 0, closed = false;
  async function* endless() { try { for (;;) { read++; yield piece; } } finally { closed = true; } }
  await assert.rejects(s.api.upload({ uploadUrl: s.url }, endless()), (e) => e instanceof UploadError && /64 MiB/.test(e.message));
  assert.deepEqual([s.calls.length, read, closed], [0, 65, true]);
  async function* most() { for (let i = 0; i < 64; i++) yield piece; }
  await s.api.upload({ uploadUrl: s.url }, most());
  assert.equal(s.calls[0].body.length, 64 << 20);
});

test("a session goes on when storage has had too many requests", async (t) => {
  const got = session();
  const s = await script(t, (call, n) => n === 2 ? [429, { "Retry-After": "2" }, ""] : got.answer(call));
  await s.api.upload({ resumableUploadUrl: s.url }, new Blob([content]), { part });
  assert.ok(got.bytes.equals(content) && s.waits[0] >= 2000);
});

test("a file that goes whole is not read into memory, and has time by its size", async (t) => {
  const file = path();
  truncateSync(file, 5e8); // sparse: it takes no room on the disk
  const timers = t.mock.method(globalThis, "setTimeout").mock;
  let size, before = process.memoryUsage().arrayBuffers;
  const api = new Linkreel({ baseUrl: "http://127.0.0.1:1", key: "k", fetch: async (_, { body }) => {
    [size, before] = [body.size, process.memoryUsage().arrayBuffers - before];
    return new Response("");
  } });
  await api.upload({ uploadUrl: "http://127.0.0.1:1/" }, file);
  assert.ok(size === 5e8 && before < 1e8, `${before} bytes held`);
  assert.ok(timers.calls.some((c) => c.arguments[1] === 5e8 / 64));
});

test("a file that changes while it is sent is told", async (t) => {
  const file = path();
  const s = await script(t, () => { truncateSync(file, 10); return lost; });
  await assert.rejects(s.api.upload({ uploadUrl: s.url }, file), (e) => e instanceof UploadError && /changed/.test(e.message));
});

test("an empty file ends too", async (t) => {
  for (const file of [new Blob(), pieces(Buffer.alloc(0))]) {
    const s = await script(t, ({ headers }) => headers["content-range"] === "bytes */0" ? [200, {}, ""] : [308, {}, ""]);
    await s.api.upload({ resumableUploadUrl: s.url }, file);
  }
});

test("an upload that gets nowhere ends", async (t) => {
  let s = await script(t, ({ headers }) => headers["content-range"].includes("*/") ? [308, {}, ""] : lost);
  await assert.rejects(s.api.upload({ resumableUploadUrl: s.url }, new Blob(["file"])), ConnectionError);
  assert.ok(s.calls.length < 20);
  s = await script(t, [308, {}, ""]);
  await assert.rejects(s.api.upload({ resumableUploadUrl: s.url }, new Blob(["file"])), UploadError);
  s = await script(t, [308, { Range: "bytes=0-999999" }, ""]);
  await assert.rejects(s.api.upload({ resumableUploadUrl: s.url }, pieces(Buffer.alloc(10))), UploadError);
});

test("a dead address is told, without the address in the error", async (t) => {
  for (const status of [403, 404, 410, 499]) {
    const s = await script(t, [status, {}, "<Error/>"]);
    for (const target of [{ uploadUrl: `${s.url}/o?sig=secret` }, { resumableUploadUrl: `${s.url}/o?sig=secret` }]) {
      await assert.rejects(s.api.upload(target, new Blob(["file"])), (e) => e instanceof UploadGoneError && !inspect(e).includes("secret"));
    }
    assert.equal(s.calls.length, 2);
  }
  const s = await script(t, lost);
  await assert.rejects(s.api.upload({ uploadUrl: `${s.url}/o?sig=secret` }, new Blob(["file"])), (e) => e instanceof ConnectionError && !inspect(e).includes("secret"));
  await assert.rejects(s.api.upload({}, new Blob(["file"])), TypeError);
  await assert.rejects(s.api.upload({ uploadUrl: s.url }, 42), TypeError);
  await assert.rejects(s.api.upload({ uploadUrl: s.url }, "/nowhere/clip.mp4"), { code: "ENOENT" });
});
