// Webhooks are verified whatever the headers look like, and a refusal has its reason.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { receiveWebhook, verifyWebhook, WebhookError } from "../dist/index.js";

const key = Buffer.from("0123456789abcdef0123456789abcdef"), secret = "whsec_" + key.toString("base64"), old = "whsec_" + Buffer.from("another").toString("base64");
const body = '{"type":"link.created","timestamp":"2026-09-21T13:33:20.000Z","data":{"id":"lnk_1","title":"ä"}}';
const now = 1_790_000_000_000, stamp = String(now / 1000);
const sign = (by = key, text = body, at = stamp) => "v1," + createHmac("sha256", by).update(`evt_1.${at}.${text}`).digest("base64");
const plain = (more = {}) => ({ "webhook-id": "evt_1", "webhook-timestamp": stamp, "webhook-signature": sign(), ...more });
const titled = { "Webhook-Id": "evt_1", "Webhook-Timestamp": stamp, "WEBHOOK-SIGNATURE": sign(), Host: "x" };

test("headers in any form are understood", async () => {
  const twice = new Headers(plain({ "webhook-signature": "v1,AAAA" }));
  twice.append("webhook-signature", sign());
  for (const headers of [
    plain(), titled, new Headers(titled), new Map(Object.entries(titled)), Object.entries(titled), Object.fromEntries(Object.entries(titled).map(([k, v]) => [k, [v]])),
    plain({ "webhook-signature": ["v1,AAAA", sign()] }), plain({ "webhook-signature": `v1a,x v1,!! ${sign()}` }), twice,
  ]) {
    assert.equal(await verifyWebhook(secret, headers, body, { now }), true);
    assert.equal(await verifyWebhook(secret, headers, Buffer.from(body), { now }), true);
  }
});

test("a message comes with its id and type", async () => {
  const message = await receiveWebhook(secret, titled, body, { now });
  assert.deepEqual(message, { id: "evt_1", type: "link.created", timestamp: "2026-09-21T13:33:20.000Z", data: { id: "lnk_1", title: "ä" } });
});

test("while a secret is rolled, one of the two is enough", async () => {
  assert.equal(await verifyWebhook([old, secret], titled, body, { now }), true);
  assert.equal(await verifyWebhook(`${secret}\n`, titled, body, { now }), true);
});

test("a refusal says why", async () => {
  for (const [reason, headers, text, at] of [
    ["missing_header", {}], ["missing_header", plain({ "webhook-id": undefined })], ["missing_header", plain({ "webhook-signature": "" })],
    ["repeated_header", plain({ "webhook-id": ["evt_1", "evt_2"] })], ["bad_timestamp", plain({ "webhook-timestamp": "soon" })],
    ["too_old", plain(), body, now + 301_000], ["too_new", plain(), body, now - 301_000],
    ["bad_signature", plain(), body + " "], ["bad_signature", plain({ "webhook-id": "evt_2" })], ["bad_signature", plain({ "webhook-signature": sign().replace("v1", "v2") })],
    ["bad_signature", plain({ "webhook-signature": sign(Buffer.from("another")) })], ["not_json", plain({ "webhook-signature": sign(key, "{") }), "{"],
  ]) {
    const given = [secret, headers, text ?? body, { now: at ?? now }];
    await assert.rejects(receiveWebhook(...given), (e) => e instanceof WebhookError && e.reason === reason && e.message.length > 10, `${reason}`);
    assert.equal(await verifyWebhook(...given), false);
  }
});

test("a wrong secret or body is the program's mistake, not the sender's", async () => {
  for (const wrong of ["", "whsec_", "whsec_!!", undefined, []]) await assert.rejects(verifyWebhook(wrong, plain(), body, { now }), TypeError);
  await assert.rejects(verifyWebhook(secret, plain(), JSON.parse(body), { now }), TypeError);
});
