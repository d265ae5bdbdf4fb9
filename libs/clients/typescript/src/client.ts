/** The wire: requests, retries, errors and pages. */
import { ApiError, ConnectionError, LinkreelError, NotFoundError, TimeoutError, apiError, cancelled } from "./errors.js";
import type { ErrorBody } from "./errors.js";
import { version } from "./version.js";
import type { Page } from "./types.js";

/** Where the API is, and how calls behave unless their own options say otherwise. */
export interface ClientOptions {
  /** Address of the deployment, such as https://linkreel.example. */
  baseUrl: string;
  /** An API key, `lr_live_…`; `null` for the calls that need none. In a browser use one with few scopes. */
  key: string | null;
  /** How often a call is tried in all, 5 by default. */
  attempts?: number;
  /** Milliseconds for one attempt, 30,000 by default. */
  timeout?: number;
  /** The longest single wait that `Retry-After` may ask for, 60,000 ms by default. */
  maxWait?: number;
  /** Called with each response, those that are retried too. */
  onResponse?: (response: ResponseInfo) => void;
  fetch?: typeof fetch;
  /** Waits between attempts, at most until the signal aborts; tests put their clock here. */
  sleep?: (ms: number, signal?: AbortSignal) => Promise<void>;
}

/** Options of one call. They are always the last argument. */
export interface CallOptions {
  /** Cancels the call, waits and retries included. `AbortSignal.timeout(ms)` limits the whole of it. */
  signal?: AbortSignal;
  /** Milliseconds for one attempt. */
  timeout?: number;
  /** How often to try in all. */
  attempts?: number;
  /** Further headers. */
  headers?: Record<string, string>;
  /** Called with each response to this call, those that are retried too. */
  onResponse?: (response: ResponseInfo) => void;
}
/** Options of a call that reads a record with an `ETag`. */
export interface ReadOptions extends CallOptions {
  /** The `ETag` that the caller has: an unchanged record is a `NotModifiedError`. */
  ifNoneMatch?: string;
}
/** Options of a call that changes a record. */
export interface ChangeOptions extends CallOptions {
  /** The `ETag` that the record must still have: otherwise the call is a `ConflictError`. */
  ifMatch?: string;
}
/** Options of a call that makes something. */
export interface CreateOptions extends CallOptions {
  /** The same key has the effect once, in whichever program and run; by default each call has its own. */
  idempotencyKey?: string;
}
type AnyOptions = ReadOptions & ChangeOptions & CreateOptions;

/** What a response says beside its body. */
export interface ResponseInfo {
  status: number;
  /** Names the request in the logs of the service. */
  requestId: string;
  /** For `ifMatch` and `ifNoneMatch`. */
  etag: string | undefined;
  /** The account's bucket of requests: its size, what is left, and when it is full again. */
  rateLimit: { limit: number; remaining: number; resetAt: Date } | undefined;
  /** Whether this is the stored answer of an earlier request with the same idempotency key. */
  replayed: boolean;
  /** 1 for the first attempt of the call. */
  attempt: number;
  headers: Headers;
}

type QueryValue = string | number | boolean | Date | null | undefined;
/** The parts of a request. */
export interface Request {
  /** The values of the path's `{…}`, in their order. */
  path?: string[];
  query?: { [name: string]: QueryValue | QueryValue[] };
  /** JSON, unless `type` says otherwise. */
  body?: unknown;
  /** The Content-Type of a body that is sent as it is. */
  type?: string;
  /** What the answer is read as: `json` by default, `blob` for a picture, `none` if there is no body. */
  answer?: "json" | "blob" | "none";
  /** The call has no idempotency key, so it is not repeated when it may have taken effect. */
  once?: boolean;
  /** The next page is told by the `Link` header. */
  linked?: boolean;
}

const pause = (ms: number, signal?: AbortSignal) => new Promise<void>((done) => {
  // The timer is cleared, since it would keep the program running.
  const stop = () => { clearTimeout(timer); signal?.removeEventListener("abort", stop); done(); };
  const timer = setTimeout(stop, Math.min(ms, longestTimer));
  signal?.addEventListener("abort", stop);
});
// A longer timer would fire at once.
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
   * Makes a call that has no method of its own, with the same retries and errors.
   * `path` starts with `/`; it may have `{…}` for the values of `request.path`.
   */
  request<T = unknown>(method: string, path: string, request: Request = {}, options: ReadOptions & ChangeOptions & CreateOptions = {}): Promise<T> {
    return this.call<T>(method.toUpperCase(), path, request, options);
  }

  /** Makes a call and returns what its answer has in it. */
  protected async call<T>(method: string, path: string, request: Request, options: AnyOptions = {}): Promise<T> {
    return this.#ask(method, path, request, options, (response) => read(response, request) as Promise<T>);
  }

  /** Reads a stream of JSON, one record a line. A stream that breaks off is a `ConnectionError`. */
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

  /** Sends a request until `use` has made something of a good answer. */
  async #ask<T>(method: string, path: string, request: Request, options: AnyOptions, use: (response: Response) => Promise<T>): Promise<T> {
    const target = this.#o.baseUrl + address(path, request);
    const { body, type } = encode(request);
    const headers = this.#headers(request, options, type);
    if (method === "POST" && !request.once) headers.set("Idempotency-Key", options.idempotencyKey ?? crypto.randomUUID());
    // The time for which the service holds the request comes on top, or a short limit would end each hold.
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
        // The attempt whose answer was lost has deleted it.
        if (method === "DELETE" && unsure && request.answer === "none" && error instanceof NotFoundError) return undefined as T;
        unsure ||= mayHaveActed(error);
        throw error;
      } finally {
        // Out here, so that what the caller's function throws is not taken for a broken connection.
        if (answered) this.#tell(answered, attempt, options);
      }
    }, options, request.once);
    return answer.catch((error: unknown) => {
      if (unsure && options.ifMatch && error instanceof ApiError && error.status === 412) {
        // The record may have another ETag because of this very call.
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

  /** All records of a list; `read` gets the cursor of each page. */
  protected pages<T>(read: (cursor: never) => Promise<Page<T>>): Pages<T> { return new Pages(read); }

  /** Tries until it succeeds or another attempt would not help. */
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

  /** Waits before the next attempt, or throws the error when there is none. */
  protected async rest(error: unknown, attempt: number, options: CallOptions): Promise<void> {
    const again = error instanceof ConnectionError || error instanceof ApiError &&
      (error.status === 429 || error.status === 408 || error.status >= 500 || error.code === "IDEMPOTENCY_IN_PROGRESS");
    const asked = error instanceof ApiError ? error.retryAfter ?? 0 : 0;
    if (!again || attempt >= (options.attempts ?? this.#o.attempts) || asked > this.#o.maxWait) throw error;
    const backoff = Math.min(200 * 2 ** (attempt - 1), 10_000) * (0.5 + Math.random() / 2);
    await this.sleep(Math.max(asked, backoff), options.signal);
  }

  /** Waits, unless the signal ends it. */
  protected async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await unless(this.#o.sleep(ms, signal), signal);
    if (signal?.aborted) throw cancelled(signal);
  }

  /** How often a call is tried in all. */
  protected get attempts(): number { return this.#o.attempts; }

  /** Sends one request and reads its answer, both within the time limit. */
  protected async exchange<T>(url: string, init: RequestInit, { signal, timeout = this.#o.timeout }: CallOptions, read: (response: Response) => Promise<T>): Promise<T> {
    if (signal?.aborted) throw cancelled(signal);
    // By hand, since AbortSignal.any and AbortSignal.timeout are collected too early by some versions of Node.
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

/** A list of any length. Pages are read as you go; each loop starts from the beginning. */
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

/** The promise's value, unless the signal aborts or the time is over first. */
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

// The last errors of calls of which an earlier attempt may have taken effect.
const actedBefore = new WeakSet<ApiError>();

/** Whether the attempt with this error, or an earlier one of its call, may have changed something. */
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

/** Path and query of a call. */
function address(path: string, { path: values = [], query = {} }: Request): string {
  if (!/^\/(?![/\\])/.test(path)) throw new TypeError(`The path must start with one slash, and is ${path}`);
  let i = 0;
  const full = path.replace(/\{[^}]*\}/g, (name) => {
    const value = values[i++];
    if (typeof value !== "string" || value === "") throw new TypeError(`The value of ${name} in ${path} is missing: pass an id.`);
    return encodeURIComponent(value);
  });
  // fetch resolves these itself: DELETE …/captions/.. would delete the video.
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
    // JSON would send null for both, which clears the field.
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

/** The error of an answer that looks like success, and that the API did not send so. */
function notOurs(response: Response): ConnectionError {
  return new ConnectionError(`The answer ${response.status} is not what the API sends: it was cut, or a network that wants a sign-in answered.`);
}

/** The cursor of the address with rel="next" in a Link header. */
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

/** Retry-After, a number of seconds or a date, in milliseconds. */
function retryAfter(value: string | null): number | undefined {
  if (!value) return undefined;
  const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
  return Number.isNaN(ms) ? undefined : Math.max(ms, 0);
}
