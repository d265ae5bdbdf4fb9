// Tests against a scripted server; with LINKREEL_STACK (the stack.json of a
// running stack) also against the real thing.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import * as client from "../dist/index.js";
import {
  ApiError, AuthenticationError, BulkError, CancelledError, ConflictError, ConnectionError, GoneError, Linkreel, LinkreelError, NotFoundError, NotModifiedError, Operator, PermissionError,
  RateLimitError, ServerError, TimeoutError, ValidationError, VideoFailedError,
} from "../dist/index.js";
import { cut, lost, ok, refuse, script, silent } from "./server.js";

const link = { id: "lnk_1" };

test("a lost answer is retried with the same key, and Retry-After is obeyed", async (t) => {
  const s = await script(t, lost, refuse(503, "UNAVAILABLE", { "Retry-After": "3" }), ok(link, 201));
  assert.deepEqual(await s.api.createLink({ url: "https://example.com" }), link);
  assert.equal(new Set(s.calls.map((c) => c.headers["idempotency-key"])).size, 1);
  assert.ok(s.waits[1] >= 3000);
});

test("an answer that is cut or is not JSON is retried like none", async (t) => {
  for (const bad of [cut(ok(link, 201)), cut(refuse(409, "SLUG_TAKEN")), [200, { "Content-Type": "text/html" }, "<h1>Sign in to the Wi-Fi</h1>"], [201, {}, ""]]) {
    const s = await script(t, bad, bad, ok(link, 201));
    assert.deepEqual(await s.api.createLink({ url: "https://example.com" }), link);
    assert.equal(new Set(s.calls.map((c) => c.headers["idempotency-key"])).size, 1);
    assert.deepEqual(await s.api.getLink("lnk_1"), link);
    const never = await script(t, bad);
    await assert.rejects(never.api.getLink("lnk_1", { attempts: 2 }), (e) => e instanceof ConnectionError && e instanceof LinkreelError);
    assert.equal(never.calls.length, 2);
  }
});

test("the page of a network that wants a sign-in is no answer", async (t) => {
  const portal = [200, { "Content-Type": "text/html; charset=utf-8" }, "<h1>Sign in</h1>"];
  let s = await script(t, portal, [204, {}, ""]);
  await s.api.deleteLink("lnk_1");
  assert.equal(s.calls.length, 2);
  s = await script(t, portal, [200, { "Content-Type": "image/svg+xml" }, "<svg/>"]);
  assert.equal(await (await s.api.getLinkQr("lnk_1")).text(), "<svg/>");
  s = await script(t, portal, [200, {}, '{"type":"account"}\n']);
  for await (const line of s.api.exportAccount()) assert.equal(line.type, "account");
  s = await script(t, portal, [200, {}, ""]);
  await s.api.upload({ uploadUrl: s.url }, new Blob(["file"]));
  assert.equal(s.calls.length, 2);
});

test("each class of refusal has its error, and none of them is retried", async (t) => {
  for (const [status, kind] of [
    [400, ValidationError], [401, AuthenticationError], [403, PermissionError], [404, NotFoundError], [409, ConflictError], [410, GoneError], [412, ConflictError],
    [413, ValidationError], [422, ValidationError], [405, ApiError],
  ]) {
    const s = await script(t, refuse(status, "SOME_CODE", {}, { details: [{ field: "url", code: "required", message: "This field is required." }], docUrl: "/docs/guides/errors#some_code" }));
    await assert.rejects(s.api.createLink({ url: "" }), (e) => {
      assert.ok(e instanceof kind && e instanceof ApiError && e.name === kind.name, `${status}: ${e.name}`);
      assert.deepEqual([e.status, e.code, e.requestId, e.details.length, e.docUrl], [status, "SOME_CODE", "r", 1, s.url + "/docs/guides/errors#some_code"]);
      assert.equal(e.message, "m (SOME_CODE); url: This field is required. [request r]");
      return true;
    });
    assert.equal(s.calls.length, 1);
  }
  for (const [status, kind] of [[429, RateLimitError], [500, ServerError], [503, ServerError]]) {
    const s = await script(t, refuse(status, "SOME_CODE", { "Retry-After": "2" }));
    await assert.rejects(s.api.getAccount(), (e) => e instanceof kind && e.retryAfter === 2000);
    assert.equal(s.calls.length, 5);
  }
  const stale = await script(t, refuse(412, "PRECONDITION_FAILED", { ETag: '"r3"' }));
  await assert.rejects(stale.api.updateLink("lnk_1", {}, { ifMatch: '"r2"' }), { etag: '"r3"' });
  const s = await script(t, [404, { "Content-Type": "text/html" }, "<h1>nginx</h1>"]);
  await assert.rejects(s.api.getAccount(), { code: "HTTP_404", status: 404, requestId: "" });
});

test("a wait that is too long is not taken", async (t) => {
  for (const after of ["3600", new Date(Date.now() + 3_600_000).toUTCString()]) {
    const s = await script(t, refuse(429, "RATE_LIMITED", { "Retry-After": after }));
    await assert.rejects(s.api.getAccount(), (e) => e instanceof RateLimitError && e.retryAfter > 3_500_000);
    assert.equal(s.waits.length, 0);
  }
});

test("an attempt has its time, and a signal ends the whole call", async (t) => {
  let s = await script(t, silent, ok({}));
  await s.api.getAccount({ timeout: 3000 }); // enough for the second attempt on a busy machine
  assert.equal(s.calls.length, 2);
  s = await script(t, silent);
  await assert.rejects(s.api.getAccount({ timeout: 20, attempts: 2 }), (e) => e instanceof TimeoutError && e instanceof ConnectionError);
  await assert.rejects(s.api.getAccount({ signal: AbortSignal.timeout(20) }), TimeoutError);
  const stop = new AbortController(), why = new Error("enough");
  setTimeout(() => stop.abort(why), 20);
  const gone = (e) => e instanceof CancelledError && e.name === "AbortError" && e.cause === why;
  await assert.rejects(s.api.getAccount({ signal: stop.signal }), gone);
  await assert.rejects(s.api.getAccount({ signal: stop.signal }), gone);
  s = await script(t, refuse(503, "UNAVAILABLE"));
  const late = new AbortController();
  const waiting = new Linkreel({ ...s.options, sleep: () => { late.abort(why); return new Promise(() => {}); } });
  await assert.rejects(waiting.getAccount({ signal: late.signal }), gone);
  assert.equal(s.calls.length, 1);
});

test("options reach the wire, and what an answer says can be read", async (t) => {
  const s = await script(t, refuse(503, "UNAVAILABLE"), ok({}, 200, {
    ETag: '"7"', "X-Request-Id": "abc", "X-RateLimit-Limit": "600", "X-RateLimit-Remaining": "599", "X-RateLimit-Reset": "1790000000", "Idempotent-Replayed": "true",
  }));
  const seen = [];
  await s.api.updateLink("lnk_1", { title: null }, { ifMatch: '"6"', headers: { "X-Trace": "t" }, onResponse: (r) => seen.push(r) });
  assert.deepEqual([s.calls[1].headers["if-match"], s.calls[1].headers["x-trace"], s.calls[1].headers.authorization], ['"6"', "t", "Bearer k"]);
  assert.match(s.calls[1].headers["user-agent"], /^linkreel-typescript\/\d/);
  assert.deepEqual(seen.map((r) => [r.status, r.attempt]), [[503, 1], [200, 2]]);
  const { etag, requestId, replayed, rateLimit } = seen[1];
  assert.deepEqual([etag, requestId, replayed, rateLimit], ['"7"', "abc", true, { limit: 600, remaining: 599, resetAt: new Date(1790000000000) }]);
  await s.api.createLink({ url: "https://example.com" }, { idempotencyKey: "mine" });
  assert.equal(s.calls[2].headers["idempotency-key"], "mine");
  const same = await script(t, [304, { ETag: '"7"' }]);
  await assert.rejects(same.api.getLink("lnk_1", { ifNoneMatch: '"7"' }), (e) => e instanceof NotModifiedError && same.calls[0].headers["if-none-match"] === '"7"');
});

test("what the caller's function throws ends the call", async (t) => {
  const s = await script(t, ok(link, 201));
  await assert.rejects(s.api.createLink({ url: "https://example.com" }, { onResponse: () => { throw new RangeError("mine"); } }), RangeError);
  assert.equal(s.calls.length, 1);
});

test("a very long time limit is one, and a cancelled wait leaves no timer", async (t) => {
  const s = await script(t, ok({}), refuse(503, "UNAVAILABLE", { "Retry-After": "50" }));
  await s.api.getAccount({ timeout: Infinity });
  // The line comes after a timer of 1 ms, which is what Infinity would be.
  const slow = new ReadableStream({ start(c) { setTimeout(() => { c.enqueue(Buffer.from('{"type":"account"}\n')); c.close(); }, 20); } });
  const exporter = new Linkreel({ ...s.options, fetch: async () => new Response(slow) });
  for await (const line of exporter.exportAccount({ timeout: Infinity })) assert.equal(line.type, "account");
  const begin = performance.now(), { baseUrl, key } = s.options;
  await assert.rejects(new Linkreel({ baseUrl, key }).getAccount({ signal: AbortSignal.timeout(50) }), TimeoutError);
  const far = await script(t, refuse(503, "UNAVAILABLE", { "Retry-After": "10000000" }));
  await assert.rejects(new Linkreel({ ...far.options, maxWait: Infinity, sleep: undefined }).getAccount({ signal: AbortSignal.timeout(50) }), TimeoutError);
  assert.equal(far.calls.length, 1);
  assert.ok(performance.now() - begin < 20_000);
  assert.ok(!process.getActiveResourcesInfo().includes("Timeout"));
});

test("a redirect is told and not followed, since a POST would become a GET", async (t) => {
  const s = await script(t, [301, { Location: "https://other.example/" }, ""]);
  await assert.rejects(s.api.createLink({ url: "https://example.com" }), (e) => e instanceof ApiError && e.message.includes("https://other.example/"));
  assert.equal(s.calls.length, 1);
});

test("keys and addresses are checked at once, and an error never has the key", () => {
  const make = (key, baseUrl = "https://linkreel.example") => new Linkreel({ baseUrl, key });
  make("lr_live_abc\n");
  make("lr_live_abc\r\n");
  make(null);
  for (const key of ["", " ", "\n", undefined, "lr_live_secret\nX: y", "lr_live_secret\0", "lr_live_sécret", "lr live secret"]) {
    assert.throws(() => make(key), (e) => e instanceof TypeError && !inspect(e).includes("lr_live_s"));
  }
  for (const address of ["", "linkreel.example", "ftp://linkreel.example", "https://", null, "https://a:secret@linkreel.example", "https://linkreel.example?a=b"]) {
    assert.throws(() => make("k", address), (e) => e instanceof TypeError && !inspect(e).includes("secret"));
  }
  assert.ok(!inspect(make("lr_live_secret")).includes("secret"));
});

test("a key from a file has its newline taken off", async (t) => {
  const s = await script(t, ok({}));
  await new Linkreel({ ...s.options, key: "lr_live_abc\n" }).getAccount();
  await new Linkreel({ ...s.options, key: null }).createDeviceCode();
  assert.deepEqual(s.calls.map((c) => c.headers.authorization), ["Bearer lr_live_abc", undefined]);
});

test("a delete whose answer was lost is done, and one of nothing is not", async (t) => {
  let s = await script(t, lost, refuse(404, "WEBHOOK_NOT_FOUND"));
  await s.api.deleteWebhook("a/b");
  assert.equal(s.calls[0].path, "/api/v1/webhooks/a%2Fb");
  s = await script(t, refuse(429, "RATE_LIMITED"), refuse(404, "LINK_NOT_FOUND"));
  await assert.rejects(s.api.deleteLink("lnk_1"), { code: "LINK_NOT_FOUND" });
});

test("what has no idempotency key is not repeated when it may have been done", async (t) => {
  let s = await script(t, lost);
  await assert.rejects(new Operator(s.options).adminCreateSignInLink("acc_1"), ConnectionError);
  assert.deepEqual([s.calls.length, s.calls[0].headers["idempotency-key"]], [1, undefined]);
  s = await script(t, refuse(429, "RATE_LIMITED"), ok({}, 201));
  await new Operator(s.options).adminCreateSignInLink("acc_1");
  assert.equal(s.calls.length, 2);
});

test("what does no harm twice is repeated without an idempotency key", async (t) => {
  const s = await script(t, lost, ok({}, 201), lost, ok({}, 201));
  await s.api.createDeviceCode({ name: "laptop" });
  await s.api.collectDeviceKey({ deviceCode: "c" });
  assert.equal(s.calls.length, 4);
});

test("a change that an unsure attempt may have made is not told as somebody else's", async (t) => {
  let s = await script(t, lost, refuse(412, "PRECONDITION_FAILED"));
  await assert.rejects(s.api.updateLink("lnk_1", { title: "t" }, { ifMatch: '"1"' }), (e) => e instanceof ConnectionError && e.cause instanceof ConflictError && /Read the record/.test(e.message));
  assert.equal(s.calls.length, 2);
  s = await script(t, refuse(429, "RATE_LIMITED"), refuse(412, "PRECONDITION_FAILED"));
  await assert.rejects(s.api.updateLink("lnk_1", { title: "t" }, { ifMatch: '"1"' }), ConflictError);
});

test("times may be dates, and what JSON would turn into null is refused", async (t) => {
  const s = await script(t, ok({}));
  const at = new Date("2026-12-01T00:00:00Z");
  await s.api.updateLink("lnk_1", { expiresAt: at });
  await s.api.explainLink("lnk_1", { at, device: "phone", query: "a=1&b=2", percent: 0 });
  assert.equal(`${s.calls[0].body}`, '{"expiresAt":"2026-12-01T00:00:00.000Z"}');
  assert.equal(s.calls[1].path, "/api/v1/links/lnk_1/explain?at=2026-12-01T00%3A00%3A00.000Z&device=phone&query=a%3D1%26b%3D2&percent=0");
  await assert.rejects(s.api.updateLink("lnk_1", { expiresAt: new Date("nonsense") }), /expiresAt is an invalid Date/);
  await assert.rejects(s.api.updateLink("lnk_1", { maxClicks: NaN }), TypeError);
  assert.equal(s.calls.length, 2);
});

test("lists walk their pages", async (t) => {
  let s = await script(t, ok({ data: [{ _id: "b" }], hasMore: true, nextCursor: 7 }), ok({ data: [{ _id: "a" }], hasMore: false, nextCursor: null }));
  const ids = [];
  for await (const l of s.api.links({ tag: ["x", "y"], q: "sale" })) ids.push(l._id);
  assert.deepEqual([ids, s.calls[1].path], [["b", "a"], "/api/v1/links?limit=100&tag=x&tag=y&q=sale&cursor=7"]);
  s = await script(t, ok({ data: [1, 2], hasMore: true, nextCursor: 7 }));
  assert.deepEqual(await s.api.links().toArray(3), [1, 2, 1]);
  assert.equal(s.calls.length, 2);
});

test("the list of videos goes on by its Link header", async (t) => {
  const next = { Link: '<https://elsewhere.example/api/v1/videos?limit=100&cursor=a%2Bb>; rel="next"' };
  let s = await script(t, ok({ data: [1] }, 200, next), ok({ data: [2] }));
  assert.deepEqual(await s.api.videos({ status: "ready" }).toArray(), [1, 2]);
  assert.equal(s.calls[1].path, "/api/v1/videos?limit=100&status=ready&cursor=a%2Bb");
  s = await script(t, ok({ data: [1] }, 200, next));
  assert.deepEqual(await s.api.listVideos({ limit: 1 }), { data: [1], hasMore: true, nextCursor: "a+b" });
});

const created = ({ body }) => ok({ results: JSON.parse(body).urls.map((u) => ({ status: 201, data: { id: u.url } })) }, 201);
const items = (n, more = {}) => Array.from({ length: n }, (_, i) => ({ url: `https://example.com/${i}`, ...more }));

test("bulk calls take any number and keep the order", async (t) => {
  let s = await script(t, created);
  assert.deepEqual((await s.api.createLinks(items(250))).map((r) => r.data.id), items(250).map((i) => i.url));
  assert.deepEqual([s.calls.length, new Set(s.calls.map((c) => c.headers["idempotency-key"])).size], [3, 3]);
  s = await script(t, ({ body }) => ok({ results: JSON.parse(body).ids.map((id) => ({ id, status: 200 })) }));
  const ids = items(101).map((i) => i.url);
  assert.deepEqual((await s.api.updateLinks(ids, { archived: true })).map((r) => r.id), ids);
  assert.deepEqual((await s.api.deleteLinks(ids)).map((r) => r.id), ids);
  assert.equal(s.calls.length, 4);
  assert.deepEqual(await s.api.createLinks([]), []);
});

test("a bulk request stays within 1 MiB", async (t) => {
  const s = await script(t, created);
  assert.equal((await s.api.createLinks(items(90, { description: "ä".repeat(10_000) }))).length, 90);
  assert.ok(s.calls.length > 1 && s.calls.every((c) => c.body.length <= 1 << 20), `${s.calls.map((c) => c.body.length)}`);
});

test("a bulk call that breaks off keeps what was done, and continues with its key", async (t) => {
  let broken = true;
  const s = await script(t, (call, n) => broken && n > 2 ? lost : created(call));
  let error;
  await assert.rejects(s.api.createLinks(items(350)), (e) => { error = e; return e instanceof BulkError && e.cause instanceof ConnectionError; });
  assert.deepEqual([error.results.length, error.unsure.length, error.unsent.length], [200, 100, 50]);
  assert.equal(error.unsent[0].url, "https://example.com/300");
  const first = s.calls.map((c) => c.headers["idempotency-key"]);
  broken = false;
  assert.equal((await s.api.createLinks(items(350), { idempotencyKey: error.idempotencyKey })).length, 350);
  assert.deepEqual(s.calls.slice(first.length).map((c) => c.headers["idempotency-key"]).slice(0, 3), first.slice(0, 3));
  const refused = await script(t, created, refuse(403, "QUOTA_EXCEEDED"));
  await assert.rejects(refused.api.createLinks(items(150)), (e) => e.results.length === 100 && e.unsure.length === 0 && e.unsent.length === 50 && e.cause instanceof PermissionError);
});

test("a bulk request whose lost attempt may have acted is unsure, whatever the last one says", async (t) => {
  const s = await script(t, created, lost, refuse(429, "RATE_LIMITED"));
  await assert.rejects(s.api.createLinks(items(250), { attempts: 3 }), (e) => e.results.length === 100 && e.unsure.length === 100 && e.unsent.length === 50 && e.cause instanceof RateLimitError);
});

test("a bulk call sends nothing if an item is wrong, and keeps what was done whatever ends it", async (t) => {
  let s = await script(t, created);
  await assert.rejects(s.api.createLinks([...items(150), { url: "https://example.com", expiresAt: new Date("never") }]), TypeError);
  await assert.rejects(s.api.updateLinks(["lnk_1"], { expiresAt: new Date("never") }), TypeError);
  assert.equal(s.calls.length, 0);
  s = await script(t, created);
  let n = 0;
  const onResponse = () => { if (++n === 2) throw new RangeError("mine"); };
  await assert.rejects(s.api.createLinks(items(150), { onResponse }), (e) => e instanceof BulkError && e.results.length === 100 && e.unsure.length === 50 && e.cause instanceof RangeError);
});

test("waiting ends with ready or failed, has a limit, and can be stopped", async (t) => {
  const noEvents = refuse(403, "INSUFFICIENT_SCOPE");
  const video = (...answers) => { let n = 0; return ({ path }) => path.startsWith("/api/v1/events") ? noEvents : ok(answers[Math.min(n++, answers.length - 1)]); };
  let s = await script(t, video({ status: "processing" }, { status: "ready" }));
  const seen = [];
  assert.equal((await s.api.waitUntilReady("v", { onStatus: (v) => seen.push(v.status) })).status, "ready");
  assert.deepEqual(seen, ["processing", "ready"]);
  s = await script(t, video({ status: "failed", error: { code: "NOT_A_VIDEO", message: "m" } }));
  await assert.rejects(s.api.waitUntilReady("v"), (e) => e instanceof VideoFailedError && e.code === "NOT_A_VIDEO" && e.video.status === "failed");
  s = await script(t, video({ status: "processing" }));
  await assert.rejects(s.api.waitUntilReady("v", { timeout: 0 }), TimeoutError);
  s = await script(t, noEvents, ok({ status: "processing" }), ...Array(12).fill(lost), ok({ status: "ready" }));
  assert.equal((await s.api.waitUntilReady("v")).status, "ready");
  await assert.rejects(s.api.waitUntilReady("v", { signal: AbortSignal.abort(new Error("enough")) }), CancelledError);
});

test("waiting holds a request where the key may read events", async (t) => {
  let status = "processing";
  const s = await script(t, ({ path }) => {
    if (!path.startsWith("/api/v1/events")) return ok({ status });
    if (path.includes("after=")) status = "ready";
    return ok({ data: [{ id: "evt_1" }], nextCursor: "evt_2" });
  });
  await s.api.waitUntilReady("v");
  assert.deepEqual(s.calls.map((c) => c.path), ["/api/v1/events?object=v&limit=1", "/api/v1/videos/v", "/api/v1/events?object=v&after=evt_1&wait=5", "/api/v1/videos/v"]);
  assert.equal(s.waits.length, 0);
});

test("a feed goes on over an outage, and its cursor is past what was handled", async (t) => {
  const event = (id) => ({ id, type: "link.created" });
  const s = await script(t, ok({ data: [event("e1"), event("e2")], nextCursor: "c2" }), ...Array(7).fill(lost), refuse(503, "UNAVAILABLE"), ok({ data: [], nextCursor: "c3" }), ok({ data: [event("e3")], nextCursor: "c4" }));
  const feed = s.api.followEvents({ after: "c0", type: "link.created" }), got = [];
  for await (const e of feed) {
    got.push([e.id, feed.cursor]);
    if (e.id === "e3") break;
  }
  assert.deepEqual(got, [["e1", "c0"], ["e2", "e1"], ["e3", "c3"]]);
  assert.equal(feed.cursor, "c3");
  assert.deepEqual([s.calls[0].path, s.calls.at(-1).path], ["/api/v1/events?wait=25&after=c0&type=link.created", "/api/v1/events?wait=25&after=c3&type=link.created"]);
});

test("a feed from now on has its place before it waits, and each hold has its time beside the limit", async (t) => {
  const s = await script(t, ok({ data: [], nextCursor: "c1" }), lost, ok({ data: [{ id: "e1" }], nextCursor: "c2" }));
  const timers = t.mock.method(globalThis, "setTimeout").mock;
  for await (const e of s.api.followEvents({ wait: 5 }, { timeout: 4321 })) { assert.equal(e.id, "e1"); break; }
  assert.deepEqual(s.calls.map((c) => c.path), ["/api/v1/events?wait=0", "/api/v1/events?wait=5&after=c1", "/api/v1/events?wait=5&after=c1"]);
  assert.deepEqual([4321, 9321].map((ms) => timers.calls.filter((c) => c.arguments[1] === ms).length), [1, 2]);
});

test("a feed that cannot begin or has lost its place says so", async (t) => {
  const first = async (s) => { for await (const _ of s.api.followEvents({ after: "x" })) break; };
  for (const [answer, kind] of [[lost, ConnectionError], [refuse(401, "INVALID_API_KEY"), AuthenticationError], [refuse(410, "GONE"), GoneError]]) {
    await assert.rejects(first(await script(t, answer)), kind);
  }
});

test("an export is read line by line, and one that breaks off is an error", async (t) => {
  const lines = Array.from({ length: 2000 }, (_, i) => JSON.stringify({ type: "link", data: { id: i, title: "ä" } }) + "\n").join("");
  const s = await script(t, [200, {}, lines]);
  let n = 0;
  for await (const line of s.api.exportAccount()) assert.equal(line.data.id, n++);
  assert.equal(n, 2000);
  for (const bad of [cut([200, {}, lines]), [200, {}, lines.slice(0, -5)]]) {
    const broken = await script(t, bad);
    await assert.rejects(async () => { for await (const _ of broken.api.exportAccount()); }, ConnectionError);
  }
});

test("pictures are blobs", async (t) => {
  const s = await script(t, [200, { "Content-Type": "image/png" }, "PNG"]);
  const picture = await s.api.getLinkQr("lnk_1", { format: "png", size: 200 });
  assert.deepEqual([picture.type, await picture.text(), s.calls[0].path], ["image/png", "PNG", "/api/v1/links/lnk_1/qr?format=png&size=200"]);
});

test("any other request can be made, and only of this deployment", async (t) => {
  const s = await script(t, lost, ok({ new: true }));
  assert.deepEqual(await s.api.request("post", "/api/v1/things/{id}?a=1", { path: ["x/y"], query: { b: [1, 2], c: undefined }, body: { d: null } }), { new: true });
  assert.deepEqual([s.calls[1].method, s.calls[1].path, `${s.calls[1].body}`], ["POST", "/api/v1/things/x%2Fy?a=1&b=1&b=2", '{"d":null}']);
  for (const path of ["https://evil.example/", "//evil.example/", "/\\evil.example", "api/v1/links", ""]) await assert.rejects(s.api.request("GET", path), TypeError);
  assert.equal(s.calls.length, 2);
});

test("an id that is missing or a dot segment is not sent", async (t) => {
  const s = await script(t, [204, {}, ""]);
  for (const value of [".", "..", "x/..", "..\\x", "", undefined]) {
    await assert.rejects(s.api.deleteCaptions("vid_1", value), TypeError);
    await assert.rejects(s.api.deleteLink(value), TypeError);
  }
  assert.equal(s.calls.length, 0);
  await s.api.deleteCaptions("vid_1", "...");
  assert.equal(s.calls.length, 1);
});

test("require works too", async (t) => {
  const s = await script(t, ok({ plan: "free" }));
  const required = createRequire(import.meta.url)("../dist/cjs/index.js");
  assert.equal((await new required.Linkreel(s.options).getAccount()).plan, "free");
  assert.deepEqual(Object.keys(required).sort(), Object.keys(client).sort());
});

test("every operation of the document is a method that makes its request", { skip: process.env.LINKREEL_OPENAPI ? false : "LINKREEL_OPENAPI names no document" }, async (t) => {
  const doc = JSON.parse(readFileSync(process.env.LINKREEL_OPENAPI, "utf8"));
  const follow = (node) => node?.$ref ? follow(node.$ref.split("/").slice(1).reduce((at, key) => at[key], doc)) : node;
  const value = (schema) => { schema = follow(schema ?? {}); return schema.enum?.[0] ?? (schema.type === "integer" ? 1 : "x"); };
  const s = await script(t, (call) => [200, {}, call.path.includes("/export") ? "" : '{"data":[]}']);
  const operator = new Operator(s.options);
  let operations = 0;
  for (const [path, item] of Object.entries(doc.paths)) {
    for (const [method, op] of Object.entries(item).filter(([m]) => ["get", "put", "post", "patch", "delete"].includes(m))) {
      const all = [...item.parameters ?? [], ...op.parameters ?? []].map(follow), of = (place) => all.filter((p) => p.in === place);
      const ids = of("path").map((p) => `${p.name}/1`), query = Object.fromEntries(of("query").map((p) => [p.name, value(p.schema)]));
      const given = [...op.requestBody ? [follow(op.requestBody).content["application/json"] ? {} : "text"] : [], ...of("query").length ? [query] : []];
      const options = { ifMatch: '"1"', ifNoneMatch: '"2"', idempotencyKey: "key" };
      const api = op.tags[0] === "Operator" ? operator : s.api;
      assert.equal(typeof api[op.operationId], "function", op.operationId);
      const answer = api[op.operationId](...ids, ...given, options);
      if (answer[Symbol.asyncIterator]) for await (const _ of answer);
      else await answer;
      const sent = s.calls.at(-1), url = new URL(sent.path, s.url);
      const want = path.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(`${name}/1`));
      assert.deepEqual([sent.method, url.pathname, Object.fromEntries(url.searchParams)], [method.toUpperCase(), want, Object.fromEntries(Object.entries(query).map(([k, v]) => [k, String(v)]))], op.operationId);
      for (const [header, text] of [["If-Match", '"1"'], ["If-None-Match", '"2"'], ["Idempotency-Key", "key"]]) {
        if (of("header").some((p) => p.name === header)) assert.equal(sent.headers[header.toLowerCase()], text, op.operationId);
      }
      const plural = op.operationId.replace(/^list(.)/, (_, c) => c.toLowerCase()).replace(/^adminList/, "admin");
      if (plural !== op.operationId) assert.deepEqual(await api[plural](...ids).toArray(), [], plural);
      operations++;
    }
  }
  assert.ok(operations > 50, `${operations}`);
  assert.equal(s.calls.length >= operations, true);
});

test("the running stack", { skip: process.env.LINKREEL_STACK ? false : "LINKREEL_STACK names no running stack" }, async () => {
  const stack = JSON.parse(readFileSync(process.env.LINKREEL_STACK, "utf8"));
  const api = new Linkreel({ baseUrl: stack.baseUrl, key: stack.keys.business });
  const made = await api.createLink({ url: "https://example.com/typescript", title: "Ünïcode" });
  let etag;
  assert.equal((await api.getLink(made.id, { onResponse: (r) => { etag = r.etag; } })).title, "Ünïcode");
  await assert.rejects(api.getLink(made.id, { ifNoneMatch: etag }), NotModifiedError);
  await api.updateLink(made.id, { title: null }, { ifMatch: etag });
  await assert.rejects(api.updateLink(made.id, { title: "late" }, { ifMatch: etag }), { code: "PRECONDITION_FAILED" });
  assert.equal((await api.getLink(made.id)).title, "");
  assert.match(await (await api.getLinkQr(made.id)).text(), /<svg/);
  await api.deleteLink(made.id);
  await assert.rejects(api.getLink(made.id), NotFoundError);
  const clip = join(mkdtempSync(join(tmpdir(), "linkreel-")), "clip.mp4");
  execFileSync("ffmpeg", ["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:d=2", "-pix_fmt", "yuv420p", clip]);
  const video = await api.uploadVideo(clip, { title: "clip" });
  assert.equal(video.status, "ready");
  assert.ok((await api.videos().toArray()).some((v) => v._id === video.id));
  await api.deleteVideo(video.id);
  const types = new Set();
  for await (const line of api.exportAccount()) types.add(line.type);
  assert.ok(types.has("account") && types.has("key"), [...types].join());
  const operator = new Operator({ baseUrl: stack.adminUrl, key: stack.adminToken });
  assert.ok((await operator.adminAccounts().toArray()).length > 0);
});
