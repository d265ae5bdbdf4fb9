/**
 * Client of the Linkreel API for browsers and Node. Types come from the API's
 * own document; nothing but `fetch` is needed.
 *
 * Calls are retried when that is worth it, as long as the service asks in
 * Retry-After. Each POST carries an Idempotency-Key, so a retry never acts twice.
 */
import type { components } from "./schema.js";

type Schemas = components["schemas"];
export type { components, paths } from "./schema.js";
export type LinkCreate = Schemas["LinkCreate"];
export type LinkUpdate = Schemas["LinkUpdate"];
export type Link = Schemas["Link"];
export type LinkSummary = Schemas["LinkSummary"];
export type LinkCreated = Schemas["LinkCreated"];
export type LinkStats = Schemas["LinkStats"];
export type DomainStats = Schemas["DomainStats"];
export type LinkRule = Schemas["LinkRule"];
export type LinkExplained = Schemas["LinkExplained"];
export type SlugAvailable = Schemas["SlugAvailable"];
/** A visit to explain. What is left out is unknown and fulfils no condition; without `at` it is now. */
export type Visit = { country?: string; device?: string; system?: string; language?: string; query?: string; path?: string; percent?: number; at?: string | number };
export type BulkItem = Schemas["BulkItem"];
export type BulkResult = Schemas["BulkItemCreated"] | Schemas["BulkItemFailed"];
export type Domain = Schemas["Domain"];
export type VideoCreate = Omit<Schemas["VideoCreate"], "privacy" | "recording"> & { privacy?: Schemas["Privacy"]; recording?: boolean };
export type VideoUpdate = Schemas["VideoUpdate"];
export type Video = Schemas["Video"];
export type VideoSummary = Schemas["VideoSummary"];
export type VideoCreated = Schemas["VideoCreated"];
export type Account = Schemas["Account"];
export type Key = Schemas["Key"];
export type KeyCreate = Schemas["KeyCreate"];
export type KeyCreated = Schemas["KeyCreated"];
/** Filters combine; `tag` may be several, all must hold. */
export type LinkFilter = { q?: string; tag?: string | string[]; domainId?: string; slug?: string; externalId?: string; archived?: "true" | "false" | "all" };
export type VideoFilter = { q?: string; tag?: string | string[]; status?: string; privacy?: string; externalId?: string };
/** `tags` replaces all tags and goes without `addTags` and `removeTags`. */
export type BulkSet = { tags?: string[]; addTags?: string[]; removeTags?: string[]; archived?: boolean; expiresAt?: string | number | null };
export type VideoAccess = { privacy: Schemas["Privacy"]; expiresAt: number | null; allowDownload: boolean; embedOrigins: string[] };
export type ErrorBody = Schemas["Error"]["error"];

export interface Options {
  /** Address of the deployment, such as https://linkreel.example. */
  baseUrl: string;
  /** An API key. In a browser use one with few scopes. */
  key: string;
  /** Tries in all, 5 by default. */
  attempts?: number;
  /** Milliseconds for one attempt, 30,000 by default. */
  timeout?: number;
  /** The longest single wait that is accepted, 60,000 ms by default. */
  maxWait?: number;
  fetch?: typeof fetch;
  /** Waits; tests put their clock here. */
  sleep?: (ms: number, signal?: AbortSignal) => Promise<void>;
}

/** The API refused a call. Decide by `code`. */
export class ApiError extends Error {
  constructor(readonly status: number, readonly body: Partial<ErrorBody>, readonly retryAfter?: number) {
    super(`${body.message ?? `status ${status}`} (${body.code ?? `HTTP_${status}`})`);
    this.name = "ApiError";
  }
  get code(): string { return this.body.code ?? `HTTP_${this.status}`; }
  get requestId(): string { return this.body.requestId ?? ""; }
  get details(): NonNullable<ErrorBody["details"]> { return this.body.details ?? []; }
}

/** A video that could not be prepared. */
export class VideoFailed extends Error {
  constructor(readonly video: Video) {
    super(`${video.error?.message ?? "The video failed."} (${video.error?.code ?? "INTERNAL"})`);
    this.name = "VideoFailed";
  }
  get code(): string { return this.video.error?.code ?? "INTERNAL"; }
}

/** Storage does not know the upload address any more: get the video again. */
export class UploadGone extends Error {}

export interface CallOptions { signal?: AbortSignal; idempotencyKey?: string }
export interface UploadOptions extends CallOptions {
  onProgress?: (sent: number, total: number) => void;
  /** Bytes per part of an upload session, 8 MiB by default. */
  part?: number;
}

interface Request { body?: unknown; raw?: BodyInit; type?: string; query?: Record<string, string | number | string[] | null | undefined> }

const pause = (ms: number, signal?: AbortSignal) => new Promise<void>((done, fail) => {
  const stop = () => { clearTimeout(timer); fail(signal?.reason); };
  const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); done(); }, ms);
  signal?.addEventListener("abort", stop, { once: true });
});

const id = encodeURIComponent;

export class Linkreel {
  readonly #o: Required<Options>;

  constructor(options: Options) {
    if (!/^https?:\/\/[^/]/.test(options.baseUrl)) throw new TypeError(`baseUrl ${options.baseUrl} is no http or https address`);
    this.#o = { attempts: 5, timeout: 30_000, maxWait: 60_000, fetch: (...a) => fetch(...a), sleep: pause, ...options, baseUrl: options.baseUrl.replace(/\/+$/, "") };
  }

  // Links

  createLink(link: LinkCreate, o?: CallOptions) { return this.#call<LinkCreated>("POST", "/api/v1/links", { body: link }, o); }
  getLink(linkId: string, o?: CallOptions) { return this.#call<Link>("GET", `/api/v1/links/${id(linkId)}`, {}, o); }
  /** What is absent stays, `null` clears. */
  updateLink(linkId: string, update: LinkUpdate, o?: CallOptions) { return this.#call<Schemas["LinkUpdated"]>("PATCH", `/api/v1/links/${id(linkId)}`, { body: update }, o); }
  deleteLink(linkId: string, o?: CallOptions) { return this.#call<void>("DELETE", `/api/v1/links/${id(linkId)}`, {}, o); }
  linkStats(linkId: string, days: { from?: string; to?: string } = {}, o?: CallOptions) { return this.#call<LinkStats>("GET", `/api/v1/links/${id(linkId)}/stats`, { query: days }, o); }
  /** Says what a link would decide about a visit. Nothing is counted. */
  explainLink(linkId: string, visit: Visit = {}, o?: CallOptions) { return this.#call<LinkExplained>("GET", `/api/v1/links/${id(linkId)}/explain`, { query: visit }, o); }
  /** Says whether a create could take a slug now. Nothing is reserved. */
  slugAvailable(slug: string, domainId?: string, o?: CallOptions) { return this.#call<SlugAvailable>("GET", "/api/v1/links/available", { query: { slug, domainId } }, o); }
  listLinks(page: LinkFilter & { limit?: number; cursor?: number | null } = {}, o?: CallOptions) { return this.#call<Schemas["LinkList"]>("GET", "/api/v1/links", { query: page }, o); }

  /** All links that fit the filter, newest first; pages are read as you go. */
  async *links(o?: CallOptions, filter: LinkFilter = {}): AsyncGenerator<LinkSummary, void, undefined> {
    for (let cursor: number | null = null; ;) {
      const page: Schemas["LinkList"] = await this.listLinks({ ...filter, limit: 100, cursor }, o);
      yield* page.data;
      if (!page.hasMore || page.nextCursor === null) return;
      cursor = page.nextCursor;
    }
  }

  /** Any number of links, 100 to a request; one result per item, in order. */
  async bulkCreate(items: BulkItem[], o: CallOptions = {}): Promise<BulkResult[]> {
    const key = o.idempotencyKey ?? crypto.randomUUID();
    const results: BulkResult[] = [];
    for (let i = 0; i < items.length; i += 100) {
      const answer = await this.#call<{ results: BulkResult[] }>("POST", "/api/v1/links/bulk", { body: { urls: items.slice(i, i + 100) } }, { ...o, idempotencyKey: `${key}-${i}` });
      results.push(...answer.results);
    }
    return results;
  }

  /** Changes up to 100 links at once; one result per id, in order. */
  async bulkChange(ids: string[], set: BulkSet, o?: CallOptions) { return (await this.#call<{ results: BulkResult[] }>("PATCH", "/api/v1/links/bulk", { body: { ids, set } }, o)).results; }
  async bulkDelete(ids: string[], o?: CallOptions) { return (await this.#call<{ results: BulkResult[] }>("POST", "/api/v1/links/bulk-delete", { body: { ids } }, o)).results; }

  // Domains

  createDomain(hostname: string, o?: CallOptions) { return this.#call<Domain>("POST", "/api/v1/domains", { body: { hostname } }, o); }
  async domains(o?: CallOptions) { return (await this.#call<Schemas["DomainList"]>("GET", "/api/v1/domains", {}, o)).data; }
  getDomain(domainId: string, o?: CallOptions) { return this.#call<Domain>("GET", `/api/v1/domains/${id(domainId)}`, {}, o); }
  verifyDomain(domainId: string, o?: CallOptions) { return this.#call<Domain>("POST", `/api/v1/domains/${id(domainId)}/verify`, {}, o); }
  domainStats(domainId: string, days: { from?: string; to?: string } = {}, o?: CallOptions) { return this.#call<DomainStats>("GET", `/api/v1/domains/${id(domainId)}/stats`, { query: days }, o); }
  updateDomain(domainId: string, change: Schemas["DomainUpdate"], o?: CallOptions) { return this.#call<Domain>("PATCH", `/api/v1/domains/${id(domainId)}`, { body: change }, o); }
  deleteDomain(domainId: string, o?: CallOptions) { return this.#call<void>("DELETE", `/api/v1/domains/${id(domainId)}`, {}, o); }

  // Videos

  createVideo(video: VideoCreate = {}, o?: CallOptions) { return this.#call<VideoCreated>("POST", "/api/v1/videos", { body: video }, o); }
  getVideo(videoId: string, o?: CallOptions) { return this.#call<Video>("GET", `/api/v1/videos/${id(videoId)}`, {}, o); }
  async videos(limit?: number, o?: CallOptions, filter: VideoFilter = {}) { return (await this.#call<Schemas["VideoList"]>("GET", "/api/v1/videos", { query: { ...filter, limit } }, o)).data; }
  videoAccess(videoId: string, o?: CallOptions) { return this.#call<VideoAccess>("GET", `/api/v1/videos/${id(videoId)}/access`, {}, o); }
  /** Replaces who may see a video; a password that is left out stays. */
  setVideoAccess(videoId: string, access: VideoAccess & { password?: string }, o?: CallOptions) { return this.#call<VideoAccess>("PUT", `/api/v1/videos/${id(videoId)}/access`, { body: access }, o); }
  /** Takes the picture at a second of the video; null goes back to the service's choice. */
  setThumbnail(videoId: string, time: number | null, o?: CallOptions) { return this.#call<unknown>("PUT", `/api/v1/videos/${id(videoId)}/thumbnail`, { body: { time } }, o); }
  async captions(videoId: string, o?: CallOptions) { return (await this.#call<{ data: { language: string; name: string; updatedAt: number }[] }>("GET", `/api/v1/videos/${id(videoId)}/captions`, {}, o)).data; }
  deleteCaptions(videoId: string, language: string, o?: CallOptions) { return this.#call<void>("DELETE", `/api/v1/videos/${id(videoId)}/captions/${id(language)}`, {}, o); }
  updateVideo(videoId: string, update: VideoUpdate, o?: CallOptions) { return this.#call<Schemas["VideoUpdated"]>("PATCH", `/api/v1/videos/${id(videoId)}`, { body: update }, o); }
  deleteVideo(videoId: string, o?: CallOptions) { return this.#call<void>("DELETE", `/api/v1/videos/${id(videoId)}`, {}, o); }
  putCaptions(videoId: string, language: string, vtt: string, o?: CallOptions) {
    return this.#call<Schemas["CaptionsStored"]>("PUT", `/api/v1/videos/${id(videoId)}/captions/${id(language)}`, { raw: vtt, type: "text/vtt" }, o);
  }

  /** Makes a video, sends the file, waits until it plays. */
  async uploadVideo(file: Blob, video: VideoCreate = {}, o: UploadOptions = {}): Promise<Video> {
    const made = await this.createVideo(video, o);
    await this.upload(made, file, o);
    return this.waitUntilReady(made.videoId, o);
  }

  /**
   * Sends a file to a video's address: in parts that survive a broken connection
   * where there is a `resumableUploadUrl`, else whole.
   */
  async upload(video: { uploadUrl?: string; resumableUploadUrl?: string }, file: Blob, o: UploadOptions = {}): Promise<void> {
    const session = video.resumableUploadUrl;
    if (!session) {
      if (!video.uploadUrl) throw new TypeError("the video takes no upload now");
      const address = video.uploadUrl;
      await this.#again(() => this.#put(address, file, undefined, o.signal), o.signal);
      o.onProgress?.(file.size, file.size);
      return;
    }
    const part = o.part ?? 8 << 20;
    let at: number | undefined; // undefined: ask how far it got
    for (let best = 0, failures = 0; ;) {
      let have: number | "all";
      try {
        const end = Math.min((at ?? 0) + part, file.size);
        have = at === undefined || end === at
          ? await this.#put(session, undefined, `bytes */${file.size}`, o.signal)
          : await this.#put(session, file.slice(at, end, file.type), `bytes ${at}-${end - 1}/${file.size}`, o.signal);
      } catch (error) {
        await this.#wait(error, ++failures, o.signal);
        at = undefined;
        continue;
      }
      if (have === "all") {
        o.onProgress?.(file.size, file.size);
        return;
      }
      if (have > best) [best, failures] = [have, 0];
      else if (at !== undefined) failures++;
      if (failures >= this.#o.attempts) throw new Error("storage takes no more bytes");
      at = have;
      o.onProgress?.(at, file.size);
    }
  }

  /** Asks until the video plays; throws VideoFailed when it cannot. */
  async waitUntilReady(videoId: string, o: CallOptions & { onStatus?: (video: Video) => void } = {}): Promise<Video> {
    for (let wait = 1000; ; wait = Math.min(wait * 1.25, 5000)) {
      const video = await this.getVideo(videoId, o);
      o.onStatus?.(video);
      if (video.status === "ready") return video;
      if (video.status === "failed") throw new VideoFailed(video);
      await this.#o.sleep(wait, o.signal);
    }
  }

  // Account

  account(o?: CallOptions) { return this.#call<Account>("GET", "/api/v1/account", {}, o); }
  updateAccount(change: Schemas["AccountSettingsUpdate"], o?: CallOptions) { return this.#call<Account>("PATCH", "/api/v1/account", { body: change }, o); }
  async keys(o?: CallOptions) { return (await this.#call<Schemas["KeyList"]>("GET", "/api/v1/keys", {}, o)).data; }
  createKey(key: KeyCreate, o?: CallOptions) { return this.#call<KeyCreated>("POST", "/api/v1/keys", { body: key }, o); }
  rollKey(keyId: string, overlapSeconds = 0, o?: CallOptions) { return this.#call<KeyCreated>("POST", `/api/v1/keys/${id(keyId)}/roll`, { body: { overlapSeconds } }, o); }
  revokeKey(keyId: string, o?: CallOptions) { return this.#call<void>("DELETE", `/api/v1/keys/${id(keyId)}`, {}, o); }

  // The wire

  async #call<T>(method: string, path: string, request: Request, o: CallOptions = {}): Promise<T> {
    // fetch itself resolves these: DELETE …/captions/.. would delete the video.
    const dots = decodeURIComponent(path).split(/[/\\]/).find((segment) => segment === "." || segment === "..");
    if (dots) throw new TypeError(`"${dots}" cannot be part of a path: it is resolved to another path. Check the id.`);
    const query = new URLSearchParams();
    for (const [k, v] of Object.entries(request.query ?? {})) for (const e of Array.isArray(v) ? v : [v]) if (e !== undefined && e !== null) query.append(k, String(e));
    const headers: Record<string, string> = { Authorization: `Bearer ${this.#o.key}`, Accept: "application/json" };
    const body = request.raw ?? (request.body === undefined ? undefined : JSON.stringify(request.body));
    if (body !== undefined) headers["Content-Type"] = request.type ?? "application/json";
    if (method === "POST") headers["Idempotency-Key"] = o.idempotencyKey ?? crypto.randomUUID();
    let tries = 0;
    return this.#again(async () => {
      tries++;
      const answer = await this.#send(this.#o.baseUrl + path + (query.size ? `?${query}` : ""), { method, headers, body }, o.signal, this.#o.timeout);
      const text = await answer.text();
      if (answer.ok) return (text ? JSON.parse(text) : undefined) as T;
      // The attempt whose answer was lost has deleted it.
      if (method === "DELETE" && tries > 1 && answer.status === 404) return undefined as T;
      throw refusal(answer, text);
    }, o.signal);
  }

  /** What arrived so far, or "all". */
  async #put(address: string, body: Blob | undefined, range: string | undefined, signal?: AbortSignal): Promise<number | "all"> {
    const headers: Record<string, string> = range ? { "Content-Range": range } : {};
    // A 308 without Location is an answer and no redirect, to fetch as well.
    const answer = await this.#send(address, { method: "PUT", headers, body: body ?? "" }, signal, 600_000);
    const text = await answer.text();
    if (answer.status === 308) return Number(answer.headers.get("Range")?.split("-")[1] ?? -1) + 1;
    if (answer.ok) return "all";
    if ([400, 403, 404, 410].includes(answer.status)) throw new UploadGone(`storage answered ${answer.status}`);
    throw refusal(answer, text);
  }

  async #send(address: string, init: RequestInit, signal: AbortSignal | undefined, timeout: number): Promise<Response> {
    const limit = AbortSignal.timeout(timeout);
    try {
      return await this.#o.fetch(address, { ...init, signal: signal ? AbortSignal.any([signal, limit]) : limit });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Lost(`${init.method} ${new URL(address).pathname}: no answer`, { cause: error });
    }
  }

  async #again<T>(once: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (let failures = 0; ;) {
      try {
        return await once();
      } catch (error) {
        await this.#wait(error, ++failures, signal);
      }
    }
  }

  /** Waits before another attempt, or throws the error when there is none. */
  async #wait(error: unknown, failures: number, signal?: AbortSignal): Promise<void> {
    const again = error instanceof Lost || (error instanceof ApiError && (error.status === 429 || error.status >= 500 || error.code === "IDEMPOTENCY_IN_PROGRESS"));
    const asked = error instanceof ApiError ? (error.retryAfter ?? 0) : 0;
    if (!again || failures >= this.#o.attempts || asked > this.#o.maxWait) throw error;
    const backoff = Math.min(200 * 2 ** (failures - 1), 10_000) * (0.5 + Math.random() / 2);
    await this.#o.sleep(Math.max(asked, backoff), signal);
  }
}

/** An attempt without an answer. */
class Lost extends Error {}

function refusal(answer: Response, text: string): ApiError {
  let body: Partial<ErrorBody> = {};
  try {
    body = (JSON.parse(text) as { error?: Partial<ErrorBody> }).error ?? {};
  } catch { /* not ours: a proxy on the way */ }
  const after = answer.headers.get("Retry-After");
  return new ApiError(answer.status, body, after && /^\d+$/.test(after) ? Number(after) * 1000 : undefined);
}

/**
 * Whether a message came from the deployment that gave you `secret` (`whsec_…`), and lately. `body` is the request's
 * body to the last byte: read it before anything parses it.
 */
export async function verifyWebhook(
  secret: string,
  headers: Headers | Record<string, string | string[] | undefined>,
  body: string | Uint8Array,
  options: { toleranceSeconds?: number; now?: number } = {},
): Promise<boolean> {
  const get = (name: string): string => {
    const value = headers instanceof Headers ? headers.get(name) : headers[name];
    return (Array.isArray(value) ? value.join(" ") : value) ?? "";
  };
  const id = get("webhook-id"), stamp = get("webhook-timestamp");
  const age = (options.now ?? Date.now()) / 1000 - Number(stamp);
  if (!id || !/^\d+$/.test(stamp) || Math.abs(age) > (options.toleranceSeconds ?? 300)) return false;
  const raw = typeof body === "string" ? new TextEncoder().encode(body) : body;
  const head = new TextEncoder().encode(`${id}.${stamp}.`);
  const signed = new Uint8Array(head.length + raw.length);
  signed.set(head);
  signed.set(raw, head.length);
  const bytes = (text: string) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  try {
    const key = await crypto.subtle.importKey("raw", bytes(secret.replace(/^whsec_/, "")), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const part of get("webhook-signature").split(" ")) {
      // verify compares in constant time.
      if (part.startsWith("v1,") && (await crypto.subtle.verify("HMAC", key, bytes(part.slice(3)), signed))) return true;
    }
  } catch {
    return false; // a secret or a signature that is no base64
  }
  return false;
}
