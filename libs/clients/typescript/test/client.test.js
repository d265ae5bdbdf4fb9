// Tests against a scripted server; with LINKREEL_STACK (the stack.json of a
// running stack) also against the real thing.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ApiError, Linkreel, UploadGone, VideoFailed } from "../dist/index.js";

const ok = (body, status = 200) => [status, {}, JSON.stringify(body)];
const refuse = (status, code, headers = {}) => [status, headers, JSON.stringify({ error: { code, message: "m", requestId: "r" } })];
const lost = null;

/** Answers requests one after the other; the last answer repeats. */
async function script(t, ...answers) {
  const calls = [], waits = [];
  const server = createServer(async (req, res) => {
    const chunks = [];
    for await (const c of req) chunks.push(c);
    const body = Buffer.concat(chunks);
    calls.push({ method: req.method, path: req.url, headers: req.headers, body });
    let answer = answers[Math.min(calls.length, answers.length) - 1];
    if (typeof answer === "function") answer = answer(req.headers, body);
    if (answer === lost) return req.socket.destroy();
    res.writeHead(answer[0], answer[1]).end(answer[2]);
  });
  await new Promise((up) => server.listen(0, "127.0.0.1", up));
  t.after(() => { server.closeAllConnections(); server.close(); });
  const url = `http://127.0.0.1:${server.address().port}`;
  return { calls, waits, url, api: new Linkreel({ baseUrl: url + "/", key: "k", sleep: async (ms) => { waits.push(ms); } }) };
}

test("a lost answer is retried with the same key, and Retry-After is obeyed", async (t) => {
  const s = await script(t, lost, refuse(503, "UNAVAILABLE", { "Retry-After": "3" }), ok({ id: "lnk_1" }, 201));
  assert.deepEqual(await s.api.createLink({ url: "https://example.com" }), { id: "lnk_1" });
  assert.equal(new Set(s.calls.map((c) => c.headers["idempotency-key"])).size, 1);
  assert.ok(s.waits[1] >= 3000);
});

test("final answers are not retried", async (t) => {
  const s = await script(t, refuse(409, "SLUG_TAKEN"));
  await assert.rejects(s.api.createLink({ url: "https://example.com" }), (e) => e instanceof ApiError && e.code === "SLUG_TAKEN" && e.requestId === "r");
  assert.equal(s.calls.length, 1);
});

test("a wait that is too long is not taken", async (t) => {
  const s = await script(t, refuse(429, "RATE_LIMITED", { "Retry-After": "3600" }));
  await assert.rejects(s.api.account(), { code: "RATE_LIMITED" });
  assert.equal(s.waits.length, 0);
});

test("a delete whose answer was lost is done", async (t) => {
  const s = await script(t, lost, refuse(404, "LINK_NOT_FOUND"));
  await s.api.deleteLink("a/b");
  assert.equal(s.calls[0].path, "/api/v1/links/a%2Fb");
});

test("explaining a link and checking a slug", async (t) => {
  const s = await script(t, ok({ status: 302, rule: null }), ok({ available: true, reason: null }));
  assert.equal((await s.api.explainLink("a/b", { device: "phone", query: "a=1&b=2", percent: 0 })).status, 302);
  assert.equal((await s.api.slugAvailable("sale", "dom_1")).available, true);
  assert.deepEqual(s.calls.map((c) => c.path), ["/api/v1/links/a%2Fb/explain?device=phone&query=a%3D1%26b%3D2&percent=0", "/api/v1/links/available?slug=sale&domainId=dom_1"]);
});

test("links walks pages", async (t) => {
  const s = await script(t, ok({ data: [{ _id: "b" }], hasMore: true, nextCursor: 7 }), ok({ data: [{ _id: "a" }], hasMore: false, nextCursor: null }));
  const ids = [];
  for await (const l of s.api.links()) ids.push(l._id);
  assert.deepEqual([ids, s.calls[1].path], [["b", "a"], "/api/v1/links?limit=100&cursor=7"]);
});

test("bulk goes in hundreds", async (t) => {
  const s = await script(t, (_, b) => ok({ results: JSON.parse(b).urls.map(() => ({ status: 201 })) }, 201));
  assert.equal((await s.api.bulkCreate(Array(250).fill({ url: "https://example.com" }))).length, 250);
  assert.equal(s.calls.length, 3);
});

test("waiting ends with ready or failed, and can be stopped", async (t) => {
  let s = await script(t, ok({ status: "processing" }), ok({ status: "ready" }));
  assert.equal((await s.api.waitUntilReady("v")).status, "ready");
  s = await script(t, ok({ status: "failed", error: { code: "NOT_A_VIDEO", message: "m" } }));
  await assert.rejects(s.api.waitUntilReady("v"), (e) => e instanceof VideoFailed && e.code === "NOT_A_VIDEO");
  const stop = new AbortController();
  stop.abort(new Error("enough"));
  await assert.rejects(s.api.waitUntilReady("v", { signal: stop.signal }), /enough/);
});

test("a session goes on after a break, and one that gets nowhere ends", async (t) => {
  const content = Buffer.alloc(600_000, "0123456789");
  let got = Buffer.alloc(0), broken = false;
  let s = await script(t, (headers, body) => {
    const span = headers["content-range"];
    if (!span.includes("*/")) {
      const start = Number(span.split(" ")[1].split("-")[0]);
      if (start !== got.length) return [503, {}, ""];
      if (!broken && start > 0) {
        broken = true;
        got = Buffer.concat([got, body.subarray(0, 1000)]);
        return lost;
      }
      got = Buffer.concat([got, body]);
    }
    if (got.length === content.length) return [200, {}, ""];
    return [308, got.length ? { Range: `bytes=0-${got.length - 1}` } : {}, ""];
  });
  let seen = 0;
  await s.api.upload({ resumableUploadUrl: s.url }, new Blob([content]), { part: 256 << 10, onProgress: (n) => { seen = n; } });
  assert.ok(got.equals(content) && broken && seen === content.length);
  s = await script(t, (headers) => headers["content-range"].includes("*/") ? [308, {}, ""] : lost);
  await assert.rejects(s.api.upload({ resumableUploadUrl: s.url }, new Blob(["file"])));
  assert.ok(s.calls.length < 20);
});

test("a plain upload retries and knows a dead address", async (t) => {
  let s = await script(t, lost, [200, {}, ""]);
  await s.api.upload({ uploadUrl: s.url }, new Blob(["file"], { type: "video/mp4" }));
  assert.equal(`${s.calls[1].body}`, "file");
  s = await script(t, [403, {}, ""]);
  await assert.rejects(s.api.upload({ uploadUrl: s.url }, new Blob(["file"])), UploadGone);
});

test("an id that is a dot segment is not sent", async (t) => {
  const s = await script(t, [204, {}, ""]);
  for (const value of [".", "..", "x/..", "..\\x"]) {
    await assert.rejects(s.api.deleteCaptions("vid_1", value), TypeError);
    await assert.rejects(s.api.deleteLink(value), TypeError);
  }
  assert.equal(s.calls.length, 0);
  await s.api.deleteCaptions("vid_1", "...");
  assert.equal(s.calls.length, 1);
});

test("the running stack", { skip: process.env.LINKREEL_STACK ? false : "LINKREEL_STACK names no running stack" }, async () => {
  const stack = JSON.parse(readFileSync(process.env.LINKREEL_STACK, "utf8"));
  const api = new Linkreel({ baseUrl: stack.baseUrl, key: stack.keys.business });
  const made = await api.createLink({ url: "https://example.com/typescript", title: "Ünïcode" });
  await api.updateLink(made.id, { title: null });
  assert.equal((await api.getLink(made.id)).title, "");
  await api.deleteLink(made.id);
  await assert.rejects(api.getLink(made.id), { code: "LINK_NOT_FOUND" });
  const clip = join(mkdtempSync(join(tmpdir(), "linkreel-")), "clip.mp4");
  execFileSync("ffmpeg", ["-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:d=2", "-pix_fmt", "yuv420p", clip]);
  const video = await api.uploadVideo(new Blob([readFileSync(clip)], { type: "video/mp4" }), { title: "clip" });
  assert.equal(video.status, "ready");
  await api.deleteVideo(video.id);
});
