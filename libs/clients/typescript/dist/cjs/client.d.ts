/** The transport: requests, retries, errors and pages. */
import { ApiError } from "./errors.js";
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
    rateLimit: {
        limit: number;
        remaining: number;
        resetAt: Date;
    } | undefined;
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
    query?: {
        [name: string]: QueryValue | QueryValue[];
    };
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
/** Calls the API. `Linkreel` and `Operator` add the operations. */
export declare class Client {
    #private;
    constructor(options: ClientOptions);
    /**
     * Makes a call for which the client has no method, with the same retries and errors.
     * `path` starts with `/` and may contain placeholders `{…}` for the values of `request.path`.
     */
    request<T = unknown>(method: string, path: string, request?: Request, options?: ReadOptions & ChangeOptions & CreateOptions): Promise<T>;
    /** Makes a call and returns the content of its response. */
    protected call<T>(method: string, path: string, request: Request, options?: AnyOptions): Promise<T>;
    /** Reads a stream of JSON with one record per line. A stream that is cut off throws a `ConnectionError`. */
    protected lines<T>(method: string, path: string, request: Request, options?: AnyOptions): AsyncGenerator<T, void, undefined>;
    /** Returns all records of a list. `read` is called with the cursor of each page. */
    protected pages<T>(read: (cursor: never) => Promise<Page<T>>): Pages<T>;
    /** Retries until an attempt succeeds or another attempt would not help. */
    protected retry<T>(once: (attempt: number) => Promise<T>, options: CallOptions, notTwice?: boolean): Promise<T>;
    /** Waits before the next attempt, or throws the error if there is no next attempt. */
    protected rest(error: unknown, attempt: number, options: CallOptions): Promise<void>;
    /** Waits, at most until the signal aborts. */
    protected sleep(ms: number, signal?: AbortSignal): Promise<void>;
    /** The maximum number of attempts of a call. */
    protected get attempts(): number;
    /** Sends one request and reads its response, both within the time limit. */
    protected exchange<T>(url: string, init: RequestInit, { signal, timeout }: CallOptions, read: (response: Response) => Promise<T>): Promise<T>;
}
/** A list of any length. Pages are read when they are needed. Each loop starts from the beginning. */
export declare class Pages<T> implements AsyncIterable<T> {
    #private;
    constructor(read: (cursor: never) => Promise<Page<T>>);
    [Symbol.asyncIterator](): AsyncGenerator<T, void, undefined>;
    /** The records as an array, at most `limit`. */
    toArray(limit?: number): Promise<T[]>;
}
/** Returns whether the attempt with this error, or an earlier attempt of its call, may have taken effect. */
export declare function mayHaveActed(error: unknown): boolean;
export declare function encode({ body, type }: Request): {
    body?: BodyInit;
    type?: string;
};
export declare function refusal(response: Response, baseUrl?: string): Promise<ApiError>;
export {};
