/**
 * The errors of this client. A failed call throws a `LinkreelError`. An invalid argument throws
 * a `TypeError` before a request is sent.
 */
import type { components } from "./schema.js";
type Schemas = components["schemas"];
/** The `error` of an error response. */
export type ErrorBody = Schemas["Error"]["error"];
/** One rule that a request broke, and the field that broke it. */
export type ErrorDetail = Schemas["ErrorDetail"];
/** The error codes of the API. */
export type ErrorCode = Schemas["ErrorCode"];
/** The base of all errors of a call. */
export declare class LinkreelError extends Error {
}
/** The data of an `ApiError`. */
export interface Refusal {
    status: number;
    body?: Partial<ErrorBody>;
    headers?: Headers;
    /** How long the API asks to wait, in milliseconds. */
    retryAfter?: number;
}
/** The API returned an error. Branch on the class or on `code`. */
export declare class ApiError extends LinkreelError {
    /** The HTTP status. */
    readonly status: number;
    /** The `error` of the response; empty if the response is not from the API. */
    readonly body: Partial<ErrorBody>;
    /** The headers of the response. */
    readonly headers: Headers;
    /** How long the API asks to wait before another attempt, in milliseconds. */
    readonly retryAfter: number | undefined;
    constructor({ status, body, headers, retryAfter }: Refusal);
    /** The error code. Codes such as `HTTP_502` are for responses of a proxy. */
    get code(): ErrorCode | `HTTP_${number}`;
    /** The invalid fields; often empty. */
    get details(): ErrorDetail[];
    /** Identifies the request in the logs of the service; empty for a response of a proxy. */
    get requestId(): string;
    /** After a 412, the current version of the record, for `ifMatch`. */
    get etag(): string | undefined;
    /** The address of the page that explains `code`, if the deployment has one. */
    get docUrl(): string | undefined;
    /** With `CURSOR_AHEAD`, the `after` with which to resume reading the feed. */
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
/** 400, 413, 415, 422 or 431: the request is invalid; `details` names the fields. */
export declare class ValidationError extends ApiError {
}
/** 409, or 412 if `ifMatch` no longer matches: the request conflicts with the current state. */
export declare class ConflictError extends ApiError {
}
/**
 * 410: it no longer exists. With `CURSOR_AHEAD`, the service was restored from a backup, and the restore has removed
 * the position in the feed. Resume after `restartAfter`.
 */
export declare class GoneError extends ApiError {
}
/** 429, after all attempts: the next call may succeed after `retryAfter`. */
export declare class RateLimitError extends ApiError {
}
/** 5xx, after all attempts. */
export declare class ServerError extends ApiError {
}
/** 304: the record still has the `ETag` that was sent as `ifNoneMatch`. */
export declare class NotModifiedError extends ApiError {
}
/** Returns an error of the class for a status. */
export declare function apiError(refusal: Refusal): ApiError;
/**
 * No attempt received a usable response: the connection failed or broke, or the response was
 * not JSON of the API. The call may have taken effect.
 */
export declare class ConnectionError extends LinkreelError {
}
/** The last attempt, or a whole wait, took longer than its `timeout`. */
export declare class TimeoutError extends ConnectionError {
}
/** The caller's `signal` ended the call. `cause` is the signal's reason. */
export declare class CancelledError extends LinkreelError {
}
/** Returns the error for an aborted signal, which may also be a time limit. */
export declare function cancelled(signal: AbortSignal): CancelledError | TimeoutError;
/** A video that could not be prepared. */
export declare class VideoFailedError extends LinkreelError {
    readonly video: Schemas["Video"];
    constructor(video: Schemas["Video"]);
    /** The reason, such as `NOT_A_VIDEO`. */
    get code(): NonNullable<Schemas["Video"]["error"]>["code"];
}
/** Storage no longer accepts the upload address. Read the video again to get a new address. */
export declare class UploadGoneError extends LinkreelError {
}
/** An upload that cannot continue although its address is valid. */
export declare class UploadError extends LinkreelError {
}
/**
 * A request in the middle of a bulk call failed with `cause`. Earlier requests have taken effect.
 * The same call with the same items and `idempotencyKey` resumes without creating a link twice.
 */
export declare class BulkError<Result, Item> extends LinkreelError {
    /** The results so far, in the order of the items, starting with the first. */
    readonly results: Result[];
    /** The items of the failed request, if the request may have taken effect. */
    readonly unsure: Item[];
    /** The items that were certainly not processed. */
    readonly unsent: Item[];
    /** The key with which the same call resumes, for 24 hours. */
    readonly idempotencyKey: string;
    constructor(
    /** The results so far, in the order of the items, starting with the first. */
    results: Result[], 
    /** The items of the failed request, if the request may have taken effect. */
    unsure: Item[], 
    /** The items that were certainly not processed. */
    unsent: Item[], 
    /** The key with which the same call resumes, for 24 hours. */
    idempotencyKey: string, cause: unknown);
}
export {};
