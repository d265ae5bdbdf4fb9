/**
 * The errors of this client. Whatever goes wrong with a call is a `LinkreelError`; a wrong
 * argument is a `TypeError`, before anything is sent.
 */
import type { components } from "./schema.js";
type Schemas = components["schemas"];
/** The `error` of an error response. */
export type ErrorBody = Schemas["Error"]["error"];
/** One rule that a request broke, and the field that broke it. */
export type ErrorDetail = Schemas["ErrorDetail"];
/** Every code of the API's document. */
export type ErrorCode = Schemas["ErrorCode"];
/** The base of all errors of a call. */
export declare class LinkreelError extends Error {
}
/** What an `ApiError` is made of. */
export interface Refusal {
    status: number;
    body?: Partial<ErrorBody>;
    headers?: Headers;
    /** How long the API asks to wait, in milliseconds. */
    retryAfter?: number;
}
/** The API refused a call. Decide by the class or by `code`. */
export declare class ApiError extends LinkreelError {
    /** The HTTP status. */
    readonly status: number;
    /** The `error` of the response; empty when something else than the API answered. */
    readonly body: Partial<ErrorBody>;
    /** The headers of the response. */
    readonly headers: Headers;
    /** How long the API asks to wait before another attempt, in milliseconds. */
    readonly retryAfter: number | undefined;
    constructor({ status, body, headers, retryAfter }: Refusal);
    /** What went wrong. `HTTP_502` and the like come from a proxy and not from the API. */
    get code(): ErrorCode | `HTTP_${number}`;
    /** The fields that are wrong; often empty. */
    get details(): ErrorDetail[];
    /** Names the request in the logs of the service; empty when a proxy answered. */
    get requestId(): string;
    /** After a 412, the version that the record has now, for `ifMatch`. */
    get etag(): string | undefined;
    /** The address of the page that explains `code`, if the deployment has one. */
    get docUrl(): string | undefined;
    /** With `CURSOR_AHEAD`: the `after` with which to read the feed on. */
    get restartAfter(): string | undefined;
}
/** 401: the key is missing, wrong, expired or revoked. */
export declare class AuthenticationError extends ApiError {
}
/** 403: the plan, the scopes or the role of the key do not allow this, or a quota is used up. */
export declare class PermissionError extends ApiError {
}
/** 404: there is no such record, or it belongs to another account. */
export declare class NotFoundError extends ApiError {
}
/** 400, 413, 415, 422 or 431: the request is wrong; `details` names the fields. */
export declare class ValidationError extends ApiError {
}
/** 409, or 412 when `ifMatch` no longer matches: the request conflicts with the present state. */
export declare class ConflictError extends ApiError {
}
/**
 * 410: it was there once. With `CURSOR_AHEAD`, the service was restored from a backup, and the place in the feed is of
 * the time that it lost: read on after `restartAfter`.
 */
export declare class GoneError extends ApiError {
}
/** 429, after all attempts: `retryAfter` says when the next call may succeed. */
export declare class RateLimitError extends ApiError {
}
/** 5xx, after all attempts. */
export declare class ServerError extends ApiError {
}
/** 304: the record still has the `ETag` that was sent as `ifNoneMatch`. */
export declare class NotModifiedError extends ApiError {
}
/** The error of the class that belongs to a status. */
export declare function apiError(refusal: Refusal): ApiError;
/**
 * No usable answer came in any attempt: no connection, one that broke, or something that is
 * not the JSON of the API. The call may have taken effect.
 */
export declare class ConnectionError extends LinkreelError {
}
/** The last attempt, or the whole of a wait, took longer than its `timeout`. */
export declare class TimeoutError extends ConnectionError {
}
/** The caller's `signal` ended the call. `cause` is the signal's reason. */
export declare class CancelledError extends LinkreelError {
}
/** What a signal's abort becomes: it may also be a time limit. */
export declare function cancelled(signal: AbortSignal): CancelledError | TimeoutError;
/** A video that could not be prepared. */
export declare class VideoFailedError extends LinkreelError {
    readonly video: Schemas["Video"];
    constructor(video: Schemas["Video"]);
    /** Why: such as `NOT_A_VIDEO`. */
    get code(): NonNullable<Schemas["Video"]["error"]>["code"];
}
/** Storage no longer accepts the upload address. Get the video again for a new one. */
export declare class UploadGoneError extends LinkreelError {
}
/** An upload that cannot continue, though its address is good. */
export declare class UploadError extends LinkreelError {
}
/**
 * A request in the middle of a bulk call failed with `cause`. What was done before is kept.
 * The same call with the same items and `idempotencyKey` continues and makes nothing twice.
 */
export declare class BulkError<Result, Item> extends LinkreelError {
    /** The results known so far, in the order of the items, from the first on. */
    readonly results: Result[];
    /** The items of the request that failed, if some of them may have been done. */
    readonly unsure: Item[];
    /** The items of which none was done. */
    readonly unsent: Item[];
    /** The key with which the same call continues, for 24 hours. */
    readonly idempotencyKey: string;
    constructor(
    /** The results known so far, in the order of the items, from the first on. */
    results: Result[], 
    /** The items of the request that failed, if some of them may have been done. */
    unsure: Item[], 
    /** The items of which none was done. */
    unsent: Item[], 
    /** The key with which the same call continues, for 24 hours. */
    idempotencyKey: string, cause: unknown);
}
export {};
