"use strict";
Object.defineProperty(exports, "__esModule", { value: true });
exports.Pages = exports.Client = void 0;
exports.mayHaveActed = mayHaveActed;
exports.encode = encode;
exports.refusal = refusal;
/** The transport: requests, retries, errors and pages. */
const errors_js_1 = require("./errors.js");
const version_js_1 = require("./version.js");
const pause = (ms, signal) => new Promise((done) => {
    // Clear the timer, because it would keep the program running.
    const stop = () => { clearTimeout(timer); signal?.removeEventListener("abort", stop); done(); };
    const timer = setTimeout(stop, Math.min(ms, longestTimer));
    signal?.addEventListener("abort", stop);
});
// A longer timer would fire immediately.
const longestTimer = 2 ** 31 - 1;
const inBrowser = typeof document !== "undefined" || "WorkerGlobalScope" in globalThis && "importScripts" in globalThis;
/** Calls the API. `Linkreel` and `Operator` add the operations. */
class Client {
    #o;
    constructor(options) {
        const baseUrl = checkedAddress(String(options.baseUrl));
        const given = (value) => Object.fromEntries(Object.entries(value).filter(([, v]) => v !== undefined));
        this.#o = { attempts: 5, timeout: 30_000, maxWait: 60_000, fetch: (...a) => fetch(...a), sleep: pause, ...given(options), baseUrl, key: checkedKey(options.key) };
    }
    /**
     * Makes a call for which the client has no method, with the same retries and errors.
     * `path` starts with `/` and may contain placeholders `{…}` for the values of `request.path`.
     */
    request(method, path, request = {}, options = {}) {
        return this.call(method.toUpperCase(), path, request, options);
    }
    /** Makes a call and returns the content of its response. */
    async call(method, path, request, options = {}) {
        return this.#ask(method, path, request, options, (response) => read(response, request));
    }
    /** Reads a stream of JSON with one record per line. A stream that is cut off throws a `ConnectionError`. */
    async *lines(method, path, request, options = {}) {
        const body = await this.#ask(method, path, { ...request, answer: "blob" }, options, async (response) => response.body);
        if (!body)
            return;
        const reader = body.getReader(), decoder = new TextDecoder(), { timeout = this.#o.timeout, signal } = options;
        try {
            for (let text = "";;) {
                const late = new errors_js_1.TimeoutError(`${method} ${path}: nothing more came within ${timeout} ms`);
                const { done, value } = await unless(reader.read(), signal, late, timeout);
                const lines = (text + decoder.decode(value, { stream: !done })).split("\n");
                text = lines.pop() ?? "";
                for (const line of lines)
                    yield JSON.parse(line);
                if (done && text)
                    throw new errors_js_1.ConnectionError(`${method} ${path}: the answer ends in the middle of a line.`);
                if (done)
                    return;
            }
        }
        catch (error) {
            if (error instanceof errors_js_1.LinkreelError)
                throw error;
            throw new errors_js_1.ConnectionError(`${method} ${path}: the answer broke off`, { cause: error });
        }
        finally {
            reader.cancel().catch(() => { }); // a stream that broke says so again
        }
    }
    /** Sends a request until `use` has accepted a successful response. */
    async #ask(method, path, request, options, use) {
        const target = this.#o.baseUrl + address(path, request);
        const { body, type } = encode(request);
        const headers = this.#headers(request, options, type);
        if (method === "POST" && !request.once)
            headers.set("Idempotency-Key", options.idempotencyKey ?? crypto.randomUUID());
        // Add the waiting time of a long poll; otherwise a short limit would end every long poll.
        const timeout = (options.timeout ?? this.#o.timeout) + 1000 * (Number(request.query?.wait) || 0);
        let unsure = false; // whether an earlier attempt may have taken effect
        const answer = this.retry(async (attempt) => {
            let answered;
            try {
                return await this.exchange(target, { method, headers, body, redirect: "manual" }, { ...options, timeout }, async (response) => {
                    answered = response;
                    if (!response.ok)
                        throw await refusal(response, this.#o.baseUrl);
                    return await use(response);
                });
            }
            catch (error) {
                // An earlier attempt with a lost response has deleted the record.
                if (method === "DELETE" && unsure && request.answer === "none" && error instanceof errors_js_1.NotFoundError)
                    return undefined;
                unsure ||= mayHaveActed(error);
                throw error;
            }
            finally {
                // Outside the try block, so that errors of the caller's function are not taken for a broken connection.
                if (answered)
                    this.#tell(answered, attempt, options);
            }
        }, options, request.once);
        return answer.catch((error) => {
            if (unsure && options.ifMatch && error instanceof errors_js_1.ApiError && error.status === 412) {
                // An earlier attempt of this call may have changed the ETag.
                throw new errors_js_1.ConnectionError(`${method} ${path}: an earlier attempt may have taken effect. Read the record to see.`, { cause: error });
            }
            if (unsure && error instanceof errors_js_1.ApiError)
                actedBefore.add(error);
            throw error;
        });
    }
    #headers(request, options, type) {
        const headers = new Headers({ Accept: request.answer === "blob" ? "*/*" : "application/json", ...options.headers });
        const set = (name, value) => { if (value !== undefined && value !== null)
            headers.set(name, value); };
        set("Authorization", this.#o.key && `Bearer ${this.#o.key}`);
        set("Content-Type", type);
        set("If-Match", options.ifMatch);
        set("If-None-Match", options.ifNoneMatch);
        if (!inBrowser)
            set("User-Agent", `linkreel-typescript/${version_js_1.version}`); // which would need a preflight of its own in some browsers
        return headers;
    }
    /** Returns all records of a list. `read` is called with the cursor of each page. */
    pages(read) { return new Pages(read); }
    /** Retries until an attempt succeeds or another attempt would not help. */
    async retry(once, options, notTwice = false) {
        for (let attempt = 1;; attempt++) {
            try {
                return await once(attempt);
            }
            catch (error) {
                if (notTwice && mayHaveActed(error))
                    throw error;
                await this.rest(error, attempt, options);
            }
        }
    }
    /** Waits before the next attempt, or throws the error if there is no next attempt. */
    async rest(error, attempt, options) {
        const again = error instanceof errors_js_1.ConnectionError || error instanceof errors_js_1.ApiError &&
            (error.status === 429 || error.status === 408 || error.status >= 500 || error.code === "IDEMPOTENCY_IN_PROGRESS");
        const asked = error instanceof errors_js_1.ApiError ? error.retryAfter ?? 0 : 0;
        if (!again || attempt >= (options.attempts ?? this.#o.attempts) || asked > this.#o.maxWait)
            throw error;
        const backoff = Math.min(200 * 2 ** (attempt - 1), 10_000) * (0.5 + Math.random() / 2);
        await this.sleep(Math.max(asked, backoff), options.signal);
    }
    /** Waits, at most until the signal aborts. */
    async sleep(ms, signal) {
        await unless(this.#o.sleep(ms, signal), signal);
        if (signal?.aborted)
            throw (0, errors_js_1.cancelled)(signal);
    }
    /** The maximum number of attempts of a call. */
    get attempts() { return this.#o.attempts; }
    /** Sends one request and reads its response, both within the time limit. */
    async exchange(url, init, { signal, timeout = this.#o.timeout }, read) {
        if (signal?.aborted)
            throw (0, errors_js_1.cancelled)(signal);
        // Do not use AbortSignal.any and AbortSignal.timeout: some versions of Node garbage-collect them too early.
        const stop = new AbortController();
        const abort = () => stop.abort();
        const timer = setTimeout(abort, Math.min(timeout, longestTimer));
        signal?.addEventListener("abort", abort);
        try {
            const response = await this.#o.fetch(url, { ...init, signal: stop.signal });
            if (response.ok && response.headers.get("Content-Type")?.startsWith("text/html"))
                throw notOurs(response);
            return await read(response);
        }
        catch (error) {
            if (error instanceof errors_js_1.LinkreelError)
                throw error;
            if (signal?.aborted)
                throw (0, errors_js_1.cancelled)(signal);
            const what = `${init.method} ${new URL(url).pathname}`;
            if (stop.signal.aborted)
                throw new errors_js_1.TimeoutError(`${what}: no answer within ${timeout} ms`);
            throw new errors_js_1.ConnectionError(`${what}: the connection failed or broke`, { cause: error });
        }
        finally {
            clearTimeout(timer);
            signal?.removeEventListener("abort", abort);
        }
    }
    #tell(response, attempt, options) {
        if (!this.#o.onResponse && !options.onResponse)
            return;
        const { status, headers } = response;
        const number = (name) => Number(headers.get(name));
        const info = {
            status, headers, attempt, requestId: headers.get("X-Request-Id") ?? "", etag: headers.get("ETag") ?? undefined, replayed: headers.get("Idempotent-Replayed") === "true",
            rateLimit: headers.has("X-RateLimit-Limit") ? { limit: number("X-RateLimit-Limit"), remaining: number("X-RateLimit-Remaining"), resetAt: new Date(number("X-RateLimit-Reset") * 1000) } : undefined,
        };
        this.#o.onResponse?.(info);
        options.onResponse?.(info);
    }
}
exports.Client = Client;
/** A list of any length. Pages are read when they are needed. Each loop starts from the beginning. */
class Pages {
    #read;
    constructor(read) { this.#read = read; }
    async *[Symbol.asyncIterator]() {
        for (let cursor;;) {
            const page = await this.#read(cursor);
            yield* page.data;
            if (!page.hasMore || page.nextCursor === null || page.nextCursor === undefined)
                return;
            cursor = page.nextCursor;
        }
    }
    /** The records as an array, at most `limit`. */
    async toArray(limit = Infinity) {
        const all = [];
        if (limit > 0) {
            for await (const record of this) {
                if (all.push(record) >= limit)
                    break;
            }
        }
        return all;
    }
}
exports.Pages = Pages;
/** Returns the promise's value, unless the signal aborts or the time limit passes first. */
async function unless(promise, signal, late, ms = 0) {
    let stop = () => { }, timer;
    try {
        return await Promise.race([promise, new Promise((_, fail) => {
                if (late)
                    timer = setTimeout(() => fail(late), Math.min(ms, longestTimer));
                stop = () => { if (signal)
                    fail((0, errors_js_1.cancelled)(signal)); };
                signal?.addEventListener("abort", stop);
                if (signal?.aborted)
                    stop();
            })]);
    }
    finally {
        clearTimeout(timer);
        signal?.removeEventListener("abort", stop);
    }
}
// The last errors of calls with an earlier attempt that may have taken effect.
const actedBefore = new WeakSet();
/** Returns whether the attempt with this error, or an earlier attempt of its call, may have taken effect. */
function mayHaveActed(error) {
    return !(error instanceof errors_js_1.ApiError) || actedBefore.has(error) || error.status >= 500 || error.status === 408;
}
function checkedAddress(text) {
    let url;
    try {
        url = new URL(text);
    }
    catch { /* told below */ }
    if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) {
        throw new TypeError("baseUrl must be an http or https address without user, query and fragment, such as https://linkreel.example.");
    }
    return url.href.replace(/\/+$/, "");
}
function checkedKey(key) {
    if (key === null)
        return null;
    if (typeof key !== "string" || key.trim() === "")
        throw new TypeError("key is empty or missing: pass an API key, or null for the calls that need none.");
    key = key.replace(/\r?\n$/, ""); // as files have it
    if (!/^[\x21-\x7e]+$/.test(key))
        throw new TypeError("key has spaces, control characters or letters that no key has: pass the key alone.");
    return key;
}
/** Returns the path and query of a call. */
function address(path, { path: values = [], query = {} }) {
    if (!/^\/(?![/\\])/.test(path))
        throw new TypeError(`The path must start with one slash, and is ${path}`);
    let i = 0;
    const full = path.replace(/\{[^}]*\}/g, (name) => {
        const value = values[i++];
        if (typeof value !== "string" || value === "")
            throw new TypeError(`The value of ${name} in ${path} is missing: pass an id.`);
        return encodeURIComponent(value);
    });
    // fetch resolves these segments: DELETE …/captions/.. would delete the video.
    const [way = ""] = full.split(/[?#]/);
    const dots = decodeURIComponent(way).split(/[/\\]/).find((segment) => segment === "." || segment === "..");
    if (dots)
        throw new TypeError(`"${dots}" cannot be part of a path: it is resolved to another path. Check the id.`);
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
        for (const one of Array.isArray(value) ? value : [value]) {
            if (one !== undefined && one !== null)
                search.append(name, one instanceof Date ? one.toISOString() : String(one));
        }
    }
    return full + (search.size ? (full.includes("?") ? "&" : "?") + search : "");
}
function encode({ body, type }) {
    if (type !== undefined)
        return { body: body, type };
    if (body === undefined)
        return {};
    return { type: "application/json", body: JSON.stringify(body, function (name, value) {
            // JSON would encode both as null, which clears the field.
            const before = this[name];
            if (before instanceof Date && Number.isNaN(before.getTime()))
                throw new TypeError(`${name} is an invalid Date.`);
            if (typeof value === "number" && !Number.isFinite(value))
                throw new TypeError(`${name} is ${value}: JSON has no such number.`);
            return value;
        }) };
}
async function read(response, { answer = "json", linked }) {
    if (answer === "blob")
        return response.blob();
    const text = await response.text();
    if (text === "" && (answer === "none" || response.status === 204))
        return undefined;
    let data;
    try {
        data = JSON.parse(text);
    }
    catch {
        throw notOurs(response);
    }
    if (!linked)
        return data;
    const next = nextCursor(response.headers.get("Link"));
    return { ...data, hasMore: next !== null, nextCursor: next };
}
/** Returns the error for a response with a status of success that the API did not send. */
function notOurs(response) {
    return new errors_js_1.ConnectionError(`The answer ${response.status} is not what the API sends: it was cut, or a network that wants a sign-in answered.`);
}
/** Returns the cursor of the address with rel="next" in a Link header. */
function nextCursor(link) {
    const next = /<([^>]*)>[^,<]*;\s*rel="?next"?/.exec(link ?? "");
    return next ? new URL(next[1] ?? "", "http://any.example").searchParams.get("cursor") : null;
}
async function refusal(response, baseUrl) {
    const { status, headers } = response;
    const text = await response.text();
    let body = {};
    try {
        const error = JSON.parse(text)?.error;
        if (typeof error === "object" && error !== null)
            body = error;
    }
    catch { /* not ours: a proxy on the way */ }
    const redirect = response.type === "opaqueredirect" || status >= 301 && status <= 308 && status !== 304;
    if (status === 304)
        body = { message: "The record is unchanged." };
    if (redirect)
        body = { message: `The deployment redirects to ${headers.get("Location") ?? "another address"}: use that as baseUrl.` };
    if (body.docUrl && baseUrl)
        body = { ...body, docUrl: new URL(body.docUrl, baseUrl).href };
    return (0, errors_js_1.apiError)({ status, body, headers, retryAfter: retryAfter(headers.get("Retry-After")) });
}
/** Returns Retry-After, a number of seconds or a date, in milliseconds. */
function retryAfter(value) {
    if (!value)
        return undefined;
    const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - Date.now();
    return Number.isNaN(ms) ? undefined : Math.max(ms, 0);
}
