/** Verifies messages of webhooks, using only WebCrypto. */
import { LinkreelError } from "./errors.js";
import type { components } from "./schema.js";

/** The headers of a request in the form that servers provide. Names may be in any case. */
export type WebhookHeaders = Headers | Iterable<readonly [string, string | readonly string[]]> | Record<string, string | readonly string[] | undefined>;

export interface WebhookOptions {
  /** The maximum difference to the message's time, 300 seconds by default. */
  toleranceSeconds?: number;
  /** The time to compare with, in milliseconds, for tests. */
  now?: number;
}

/** A message and the id of its event. Messages may arrive more than once: store the ids that you have processed. */
export type ReceivedMessage = components["schemas"]["Message"] & { id: string };

/** The reason why a message was rejected. */
export type WebhookReason = "missing_header" | "repeated_header" | "bad_timestamp" | "too_old" | "too_new" | "bad_signature" | "not_json";

/** The error for a message that must not be trusted. Respond with 401. */
export class WebhookError extends LinkreelError {
  static { this.prototype.name = "WebhookError"; }
  constructor(readonly reason: WebhookReason, message: string) { super(message); }
}

/**
 * Returns the message of a request if it is recent and was signed with `secret` (`whsec_…`). Otherwise it throws a
 * `WebhookError` with the reason. During the rotation of a secret, pass the old and the new secret.
 * `body` is the unchanged body of the request, before any parsing.
 */
export async function receiveWebhook(secret: string | string[], headers: WebhookHeaders, body: string | Uint8Array, options: WebhookOptions = {}): Promise<ReceivedMessage> {
  const keys = (Array.isArray(secret) ? secret : [secret]).map(keyOf);
  if (keys.length === 0) throw new TypeError("There is no secret: pass the whsec_… of the webhook.");
  if (typeof body !== "string" && !(body instanceof Uint8Array)) throw new TypeError("body must be the text or the bytes of the request. Read them before anything parses them.");
  const id = header(headers, "webhook-id"), stamp = header(headers, "webhook-timestamp"), signatures = header(headers, "webhook-signature", true);
  if (!/^\d{1,15}$/.test(stamp)) throw new WebhookError("bad_timestamp", "webhook-timestamp is not a number of seconds.");
  const age = (options.now ?? Date.now()) / 1000 - Number(stamp), tolerance = options.toleranceSeconds ?? 300;
  if (age > tolerance) throw new WebhookError("too_old", `The message is ${Math.round(age)} seconds old: it is a replay, or the clocks differ.`);
  if (age < -tolerance) throw new WebhookError("too_new", `The message is ${Math.round(-age)} seconds ahead: the clocks differ.`);
  const bytes = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const signed = new Uint8Array(await new Blob([`${id}.${stamp}.`, bytes as Uint8Array<ArrayBuffer>]).arrayBuffer());
  if (!await anyMatches(keys, signatures, signed)) throw new WebhookError("bad_signature", "No signature matches: the secret is of another webhook, or the body is not as it was sent.");
  try {
    return { ...JSON.parse(new TextDecoder().decode(bytes)) as components["schemas"]["Message"], id };
  } catch {
    throw new WebhookError("not_json", "The body is not JSON.");
  }
}

/** Returns whether a message is recent and was signed with `secret`. `receiveWebhook` also returns the reason for a failure. */
export async function verifyWebhook(secret: string | string[], headers: WebhookHeaders, body: string | Uint8Array, options: WebhookOptions = {}): Promise<boolean> {
  try {
    await receiveWebhook(secret, headers, body, options);
    return true;
  } catch (error) {
    if (error instanceof WebhookError) return false;
    throw error;
  }
}

async function anyMatches(keys: Uint8Array<ArrayBuffer>[], signatures: string, signed: Uint8Array<ArrayBuffer>): Promise<boolean> {
  for (const bytes of keys) {
    const key = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const part of signatures.split(/,? +/)) {
      const signature = part.startsWith("v1,") && base64(part.slice(3));
      // verify compares in constant time.
      if (signature && await crypto.subtle.verify("HMAC", key, signature, signed)) return true;
    }
  }
  return false;
}

function header(headers: WebhookHeaders, name: string, several = false): string {
  const pairs = Symbol.iterator in headers ? headers as Iterable<readonly [string, string | readonly string[]]> : Object.entries(headers);
  const values: string[] = [];
  for (const [key, value] of pairs) if (key.toLowerCase() === name && value !== undefined) values.push(...(typeof value === "string" ? [value] : value));
  if (!values.some((value) => value !== "")) throw new WebhookError("missing_header", `The request has no ${name}: a webhook did not send it, or a proxy took it away.`);
  if (values.length > 1 && !several) throw new WebhookError("repeated_header", `The request has several ${name}.`);
  return values.join(" ");
}

function keyOf(secret: string): Uint8Array<ArrayBuffer> {
  const key = typeof secret === "string" && base64(secret.trim().replace(/^whsec_/, ""));
  if (!key || key.length === 0) throw new TypeError("The secret is not one of a webhook: it starts with whsec_ and goes on in base64.");
  return key;
}

function base64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}
