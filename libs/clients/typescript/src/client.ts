/** The transport: requests, retries, errors and pages. */
import { ApiError, ConnectionError, LinkreelError, NotFoundError, TimeoutError, apiError, cancelled } from "./errors.js";
import type { ErrorBody } from "./errors.js";
import { version } from "./version.js";
import type { Page } from "./types.js";

/** The address of the API, the key, and the defaults for the options of calls. */
export interface ClientOptions {
  /** Address of the deployment, such as https://linkreel.example. */
  baseUrl: string;
  /** An API key, `lr_live_…`, or `null` for calls that require none. In a browser, use a key with few scopes. */
  key: string | null;
  /** Maximum number of attempts of a call, 5 by default. */
  attempts?: number;
  /** Milliseconds for one attempt, 30,000 by default. */
  timeout?: number;
  /** The longest single wait that `Retry-After` may ask for, 60,000 ms by default. */
  maxWait?: number;
  /** Called with each response, including those that are retried. */
  onResponse?: (response: ResponseInfo) => void;
  fetch?: typeof fetch;
  /** Waits between attempts, at most until the signal aborts. Tests use it to control time. */
  sleep?: (ms: number, signal?: AbortSignal) => Promise<void>;
}

/** Options of one call. They are always the last argument. */
export interface CallOptions {
  /** Cancels the call, including waits and retries. `AbortSignal.timeout(ms)` limits the whole call. */
  signal?: AbortSignal;
  /** Milliseconds for one attempt. */
  timeout?: number;
  /** Maximum number of attempts. */
  attempts?: number;
  /** Further headers. */
  headers?: Record<string, string>;
  /** Called with each response to this call, including those that are retried. */
  onResponse?: (response: ResponseInfo) => void;
}
/** Options of a call that reads a record with an `ETag`. */
export interface ReadOptions extends CallOptions {
  /** The `ETag` of the caller's copy. If the record has not changed, the call throws a `NotModifiedError`. */
  ifNoneMatch?: string;
}
/** Options of a call that changes a record. */
export interface ChangeOptions extends CallOptions {
  /** The `ETag` that the record must still have. Otherwise the call throws a `ConflictError`. */
  ifMatch?: string;
}
/** Options of a call that creates a record. */
export interface CreateOptions extends CallOptions {
  /** Calls with the same key take effect once, even from different processes. By default, each call has its own key. */
  idempotencyKey?: string;
}
type AnyOptions = ReadOptions & ChangeOptions & CreateOptions;

/** The metadata of a response. */
export interface ResponseInfo {
  status: number;
  /** Identifies the request in the logs of the service. */
  requestId: string;
  /** For `ifMatch` and `ifNoneMatch`. */
  etag: string | undefined;
  /** The account's rate limit: its size, the remaining requests, and when the full limit is available again. */
  rateLimit: { limit: number; remaining: number; resetAt: Date } | undefined;
  /** Whether this is the stored response of an earlier request with the same idempotency key. */
  replayed: boolean;
  /** 1 for the first attempt of the call. */
  attempt: number;
  headers: Headers;
}

type QueryValue = string | number | boolean | Date | null | undefined;
/** The parts of a request. */
export interface Request {
  /** The values of the placeholders `{…}` in the path, in order. */
  path?: string[];
  query?: { [name: string]: QueryValue | QueryValue[] };
  /** JSON, unless `type` is set. */
  body?: unknown;
  /** The Content-Type of a body that is sent unchanged. */
  type?: string;
  /** How to read the response: `json` by default, `blob` for a picture, `none` if there is no body. */
  answer?: "json" | "blob" | "none";
  /** The call has no idempotency key, so it is not retried if it may have taken effect. */
  once?: boolean;
  /** The `Link` header contains the cursor of the next page. */
  linked?: boolean;
}

const pause = (ms: number, signal?: AbortSignal) => new Promise<void>((done) => {
  // Clear the timer, because it would keep the program running.
  const stop = () => { clearTimeout(timer); signal?.removeEventListener("abort", stop); done(); };
  const timer = setTimeout(stop, Math.min(ms, longestTimer));
  signal?.addEventListener("abort", stop);
});
// A longer timer would fire immediately.
const longestTimer = 2 ** 31 - 1;
const inBrowser = typeof document !== "undefined" || "WorkerGlobalScope" in globalThis && "importScripts" in globalThis;

/** Calls the API. `Linkreel` and `Operator` add the operations. */
export class Client {
  readonly #o: Required<Omit<ClientOptions, "onResponse">> & Pick<ClientOptions, "onResponse">;

  constructor(options: ClientOptions) {
    const baseUrl = checkedAddress(String(options.baseUrl));
    const given = (value: object) => Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined));
    this.#o = { attempts: 5, timeout: 30_000, maxWait: 60_000, fetch: (...a) => fetch(...a), sleep: pause, ...given(options) as ClientOptions, baseUrl, key: checkedKey(options.key) };
  }

  /**
   * Makes a call for which the client has no method, with the same retries and errors.
   * `path` starts with `/` and may contain placeholders `{…}` for the values of `request.path`.
   */
  request<T = unknown>(method: string, path: string, request: Request = {}, options: ReadOptions & ChangeOptions & CreateOptions = {}): Promise<T> {
    return this.call<T>(method.toUpperCase(), path, request, options);
  }

  /** Makes a call and returns the content of its response. */
  protected async call<T>(method: string, path: string, request: Request, options: AnyOptions = {}): Promise<T> {
    return this.#ask(method, path, request, options, (response) => read(response, request) as Promise<T>);
  }

  /** Reads a stream of JSON with one record per line. A stream that is cut off throws a `ConnectionError`. */
  protected async *lines<T>(method: string, path: string, request: Request, options: AnyOptions = {}): AsyncGenerator<T, void, undefined> {
    const body = await this.#ask(method, path, { ...request, answer: "blob" }, options, async (response) => response.body);
    if (!body) return;
    const reader = body.getReader(), decoder = new TextDecoder(), { timeout = this.#o.timeout, signal } = options;
    try {
      for (let text = ""; ;) {
        const late = new TimeoutError(`${method} ${path}: nothing more came within ${timeout} ms`);
        const { done, value } = await unless(reader.read(), signal, late, timeout);
        const lines = (text + decoder.decode(value, { stream: !done })).split("\n");
        text = lines.pop() ?? "";
        for (const line of lines) yield JSON.parse(line) as T;
        if (done && text) throw new ConnectionError(`${method} ${path}: the answer ends in the middle of a line.`);
        if (done) return;
      }
    } catch (error) {
      if (error instanceof LinkreelError) throw error;
      throw new ConnectionError(`${method} ${path}: the answer broke off`, { cause: error });
    } finally {
      reader.cancel().catch(() => {}); // a stream that broke says so again
    }
  }

  /** Sends a request until `use` has accepted a successful response. */
  async #ask<T>(method: string, path: string, request: Request, options: AnyOptions, use: (response: Response) => Promise<T>): Promise<T> {
    const target = this.#o.baseUrl + address(path, request);
    const { body, type } = encode(request);
    const headers = this.#headers(request, options, type);
    if (method === "POST" && !request.once) headers.set("Idempotency-Key", options.idempotencyKey ?? crypto.randomUUID());
    // Add the waiting time of a long poll; otherwise a short limit would end every long poll.
    const timeout = (options.timeout ?? this.#o.timeout) + 1000 * (Number(request.query?.wait) || 0);
    let unsure = false; // whether an earlier attempt may have taken effect
    const answer = this.retry(async (attempt) => {
      let answered: Response | undefined;
      try {
        return await this.exchange(target, { method, headers, body, redirect: "manual" }, { ...options, timeout }, async (response) => {
          answered = response;
          if (!response.ok) throw await refusal(response, this.#o.baseUrl);
          return await use(response);
        });
      } catch (error) {
        // An earlier attempt with a lost response has deleted the record.
        if (method === "DELETE" && unsure && request.answer === "none" && error instanceof NotFoundError) return undefined as T;
        unsure ||= mayHaveActed(error);
        throw error;
      } finally {
        // Outside the try block, so that errors of the caller's function are not taken for a broken connection.
        if (answered) this.#tell(answered, attempt, options);
      }
    }, options, request.once);
    return answer.catch((error: unknown) => {
      if (unsure && options.ifMatch && error instanceof ApiError && error.status === 412) {
        // An earlier attempt of this call may have changed the ETag.
        throw new ConnectionError(`${method} ${path}: an earlier attempt may have taken effect. Read the record to see.`, { cause: error });
      }
      if (unsure && error instanceof ApiError) actedBefore.add(error);
      throw error;
    });
  }

  #headers(request: Request, options: AnyOptions, type: string | undefined): Headers {
    const headers = new Headers({ Accept: request.answer === "blob" ? "*/*" : "application/json", ...options.headers });
    const set = (name: string, value: string | null | undefined) => { if (value !== undefined && value !== null) headers.set(name, value); };
    set("Authorization", this.#o.key && `Bearer ${this.#o.key}`);
    set("Content-Type", type);
    set("If-Match", options.ifMatch);
    set("If-None-Match", options.ifNoneMatch);
    if (!inBrowser) set("User-Agent", `linkreel-typescript/${version}`); // which would need a preflight of its own in some browsers
    return headers;
  }

  /** Returns all records of a list. `read` is called with the cursor of each page. */
  protected pages<T>(read: (cursor: never) => Promise<Page<T>>): Pages<T> { return new Pages(read); }

  /** Retries until an attempt succeeds or another attempt would not help. */
  protected async retry<T>(once: (attempt: number) => Promise<T>, options: CallOptions, notTwice = false): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await once(attempt);
      } catch (error) {
        if (notTwice && mayHaveActed(error)) throw error;
        await this.rest(error, attempt, options);
      }
    }
  }

  /** Waits before the next attempt, or throws the error if there is no next attempt. */
  protected async rest(error: unknown, attempt: number, options: CallOptions): Promise<void> {
    const again = error instanceof ConnectionError || error instanceof ApiError &&
      (error.status === 429 || error.status === 408 || error.status >= 500 || error.code === "IDEMPOTENCY_IN_PROGRESS");
    const asked = error instanceof ApiError ? error.retryAfter ?? 0 : 0;
    if (!again || attempt >= (options.attempts ?? this.#o.attempts) || asked > this.#o.maxWait) throw error;
    const backoff = Math.min(200 * 2 ** (attempt - 1), 10_000) * (0.5 + Math.random() / 2);
    await this.sleep(Math.max(asked, backoff), options.signal);
  }

  /** Waits, at most until the signal aborts. */
  protected async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await unless(this.#o.sleep(ms, signal), signal);
    if (signal?.aborted) throw cancelled(signal);
  }

  /** The maximum number of attempts of a call. */
  protected get attempts(): number { return this.#o.attempts; }

  /** Sends one request and reads its response, both within the time limit. */
  protected async exchange<T>(url: string, init: RequestInit, { signal, timeout = this.#o.timeout }: CallOptions, read: (response: Response) => Promise<T>): Promise<T> {
    if (signal?.aborted) throw cancelled(signal);
    // Do not use AbortSignal.any and AbortSignal.timeout: some versions of Node garbage-collect them too early.
    const stop = new AbortController();
    const abort = () => stop.abort();
    const timer = setTimeout(abort, Math.min(timeout, longestTimer));
    signal?.addEventListener("abort", abort);
    try {
      const response = await this.#o.fetch(url, { ...init, signal: stop.signal });
      if (response.ok && response.headers.get("Content-Type")?.startsWith("text/html")) throw notOurs(response);
      return await read(response);
    } catch (error) {
      if (error instanceof LinkreelError) throw error;
      if (signal?.aborted) throw cancelled(signal);
      const what = `${init.method} ${new URL(url).pathname}`;
      if (stop.signal.aborted) throw new TimeoutError(`${what}: no answer within ${timeout} ms`);
      throw new ConnectionError(`${what}: the connection failed or broke`, { cause: error });
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
    }
  }

  #tell(response: Response, attempt: number, options: CallOptions): void {
    if (!this.#o.onResponse && !options.onResponse) return;
    const { status, headers } = response;
    const number = (name: string) => Number(headers.get(name));
    const info: ResponseInfo = {
      status, headers, attempt, requestId: headers.get("X-Request-Id") ?? "", etag: headers.get("ETag") ?? undefined, replayed: headers.get("Idempotent-Replayed") === "true",
      rateLimit: headers.has("X-RateLimit-Limit") ? { limit: number("X-RateLimit-Limit"), remaining: number("X-RateLimit-Remaining"), resetAt: new Date(number("X-RateLimit-Reset") * 1000) } : undefined,
    };
    this.#o.onResponse?.(info);
    options.onResponse?.(info);
  }
}

/** A list of any length. Pages are read when they are needed. Each loop starts from the beginning. */
export class Pages<T> implements AsyncIterable<T> {
  readonly #read: (cursor: never) => Promise<Page<T>>;
  constructor(read: (cursor: never) => Promise<Page<T>>) { this.#read = read; }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    for (let cursor: unknown; ;) {
      const page = await this.#read(cursor as never);
      yield* page.data;
      if (!page.hasMore || page.nextCursor === null || page.nextCursor === undefined) return;
      cursor = page.nextCursor;
    }
  }

  /** The records as an array, at most `limit`. */
  async toArray(limit = Infinity): Promise<T[]> {
    const all: T[] = [];
    if (limit > 0) {
      for await (const record of this) {
        if (all.push(record) >= limit) break;
      }
    }
    return all;
  }
}

/** Returns the promise's value, unless the signal aborts or the time limit passes first. */
async function unless<T>(promise: Promise<T>, signal?: AbortSignal, late?: Error, ms = 0): Promise<T> {
  let stop = () => {}, timer: ReturnType<typeof setTimeout> | undefined;
  try {
    return await Promise.race([promise, new Promise<never>((_, fail) => {
      if (late) timer = setTimeout(() => fail(late), Math.min(ms, longestTimer));
      stop = () => { if (signal) fail(cancelled(signal)); };
      signal?.addEventListener("abort", stop);
      if (signal?.aborted) stop();
    })]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", stop);
  }
}

// The last errors of calls with an earlier attempt that may have taken effect.
const actedBefore = new WeakSet<ApiError>();

/** Returns whether the attempt with this error, or an earlier attempt of its call, may have taken effect. */
export function mayHaveActed(error: unknown): boolean {
  return !(error instanceof ApiError) || actedBefore.has(error) || error.status >= 500 || error.status === 408;
}

function checkedAddress(text: string): string {
  let url: URL | undefined;
  try { url = new URL(text); } catch { /* told below */ }
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) {
    throw new TypeError("baseUrl must be an http or https address without user, query and fragment, such as https://linkreel.example.");
  }
  return url.href.replace(/\/+$/, "");
}

function checkedKey(key: string | null): string | null {
  if (key === null) return null;
  if (typeof key !== "string" || key.trim() === "") throw new TypeError("key is empty or missing: pass an API key, or null for the calls that need none.");
  key = key.replace(/\r?\n$/, ""); // as files have it
  if (!/^[\x21-\x7e]+$/.test(key)) throw new TypeError("key has spaces, control characters or letters that no key has: pass the key alone.");
  return key;
}

/** Returns the path and query of a call. */
function address(path: string, { path: values = [], query = {} }: Request): string {
  if (!/^\/(?![/\\])/.test(path)) throw new TypeError(`The path must start with one slash, and is ${path}`);
  let i = 0;
  const full = path.replace(/\{[^}]*\}/g, (name) => {
    const value = values[i++];
    if (typeof value !== "string" || value === "") throw new TypeError(`The value of ${name} in ${path} is missing: pass an id.`);
    return encodeURIComponent(value);
  });
  // fetch resolves these segments: DELETE …/captions/.. would delete the video.
  const [way = ""] = full.split(/[?#]/);
  const dots = decodeURIComponent(way).split(/[/\\]/).find((segment) => segment === "." || segment === "..");
  if (dots) throw new TypeError(`"${dots}" cannot be part of a path: it is resolved to another path. Check the id.`);
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) search.append(name, one instanceof Date ? one.toISOString() : String(one));
    }
  }
  return full + (search.size ? (full.includes("?") ? "&" : "?") + search : "");
}

export function encode({ body, type }: Request): { body?: BodyInit; type?: string } {
  if (type !== undefined) return { body: body as BodyInit, type };
  if (body === undefined) return {};
  return { type: "application/json", body: JSON.stringify(body, function (this: Record<string, unknown>, name, value: unknown) {
    // JSON would encode both as null, which clears the field.
    const before = this[name];
    if (before instanceof Date && Number.isNaN(before.getTime())) throw new TypeError(`${name} is an invalid Date.`);
    if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${name} is ${value}: JSON has no such number.`);
    return value;
  }) };
}

async function read(response: Response, { answer = "json", linked }: Request): Promise<unknown> {
  if (answer === "blob") return response.blob();
  const text = await response.text();
  if (text === "" && (answer === "none" || response.status === 204)) return undefined;
  let data: unknown;
  try {
    data = JSON.parse(text);
  } catch {
    throw notOurs(response);
  }
  if (!linked) return data;
  const next = nextCursor(response.headers.get("Link"));
  return { ...data as object, hasMore: next !== null, nextCursor: next };
}

/** Returns the error for a response with a status of success that the API did not send. */
function notOurs(response: Response): ConnectionError {
  return new ConnectionError(`The answer ${response.status} is not what the API sends: it was cut, or a network that wants a sign-in answered.`);
}

/** Returns the cursor of the address with rel="next" in a Link header. */
function nextCursor(link: string | null): string | null {
  const next = /<([^>]*)>[^,<]*;\s*rel="?next"?/.exec(link ?? "");
  return next ? new URL(next[1] ?? "", "http://any.example").searchParams.get("cursor") : null;
}

export async function refusal(response: Response, baseUrl?: string): Promise<ApiError> {
  const { status, headers } = response;
  const text = await response.text();
  let body: Partial<ErrorBody> = {};
  try {
    const error: unknown = (JSON.parse(text) as { error?: unknown } | null)?.error;
    if (typeof error === "object" && error !== null) body = error;
  } catch { /* not ours: a proxy on the way */ }
  const redirect = response.type === "opaqueredirect" || status >= 301 && status <= 308 && status !== 304;
  if (status === 304) body = { message: "The record is unchanged." };
  if (redirect) body = { message: `The deployment redirects to ${headers.get("Location") ?? "another address"}: use that as baseUrl.` };
  if (body.docUrl && baseUrl) body = { ...body, docUrl: new URL(body.docUrl, baseUrl).href };
  return apiError({ status, body, headers, retryAfter: retryAfter(headers.get("Retry-After")) });
}

/** Returns Retry-After, a number of seconds or a date, in milliseconds. */
function retryAfter(value: string | null): number | undefined {
  if (!value) return undefined;
  const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(ms, 0);
}
