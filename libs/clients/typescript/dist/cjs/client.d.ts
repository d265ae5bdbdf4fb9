/** The wire: requests, retries, errors and pages. */
import { ApiError } from "./errors.js";
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
    rateLimit: {
        limit: number;
        remaining: number;
        resetAt: Date;
    } | undefined;
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
    query?: {
        [name: string]: QueryValue | QueryValue[];
    };
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
/** Calls the API. `Linkreel` and `Operator` add the operations. */
export declare class Client {
    #private;
    constructor(options: ClientOptions);
    /**
     * Makes a call that has no method of its own, with the same retries and errors.
     * `path` starts with `/`; it may have `{…}` for the values of `request.path`.
     */
    request<T = unknown>(method: string, path: string, request?: Request, options?: ReadOptions & ChangeOptions & CreateOptions): Promise<T>;
    /** Makes a call and returns what its answer has in it. */
    protected call<T>(method: string, path: string, request: Request, options?: AnyOptions): Promise<T>;
    /** Reads a stream of JSON, one record a line. A stream that breaks off is a `ConnectionError`. */
    protected lines<T>(method: string, path: string, request: Request, options?: AnyOptions): AsyncGenerator<T, void, undefined>;
    /** All records of a list; `read` gets the cursor of each page. */
    protected pages<T>(read: (cursor: never) => Promise<Page<T>>): Pages<T>;
    /** Tries until it succeeds or another attempt would not help. */
    protected retry<T>(once: (attempt: number) => Promise<T>, options: CallOptions, notTwice?: boolean): Promise<T>;
    /** Waits before the next attempt, or throws the error when there is none. */
    protected rest(error: unknown, attempt: number, options: CallOptions): Promise<void>;
    /** Waits, unless the signal ends it. */
    protected sleep(ms: number, signal?: AbortSignal): Promise<void>;
    /** How often a call is tried in all. */
    protected get attempts(): number;
    /** Sends one request and reads its answer, both within the time limit. */
    protected exchange<T>(url: string, init: RequestInit, { signal, timeout }: CallOptions, read: (response: Response) => Promise<T>): Promise<T>;
}
/** A list of any length. Pages are read as you go; each loop starts from the beginning. */
export declare class Pages<T> implements AsyncIterable<T> {
    #private;
    constructor(read: (cursor: never) => Promise<Page<T>>);
    [Symbol.asyncIterator](): AsyncGenerator<T, void, undefined>;
    /** The records as an array, at most `limit`. */
    toArray(limit?: number): Promise<T[]>;
}
/** Whether the attempt with this error, or an earlier one of its call, may have changed something. */
export declare function mayHaveActed(error: unknown): boolean;
export declare function encode({ body, type }: Request): {
    body?: BodyInit;
    type?: string;
};
export declare function refusal(response: Response, baseUrl?: string): Promise<ApiError>;
export {};
