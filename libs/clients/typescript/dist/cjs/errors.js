"use strict";
Object.defineProperty(exports, "__esModule", { value: true });
exports.BulkError = exports.UploadError = exports.UploadGoneError = exports.VideoFailedError = exports.CancelledError = exports.TimeoutError = exports.ConnectionError = exports.NotModifiedError = exports.ServerError = exports.RateLimitError = exports.GoneError = exports.ConflictError = exports.ValidationError = exports.NotFoundError = exports.PermissionError = exports.AuthenticationError = exports.ApiError = exports.LinkreelError = void 0;
exports.apiError = apiError;
exports.cancelled = cancelled;
/** The base of all errors of a call. */
class LinkreelError extends Error {
    static { this.prototype.name = "LinkreelError"; }
}
exports.LinkreelError = LinkreelError;
/** The API returned an error. Branch on the class or on `code`. */
class ApiError extends LinkreelError {
    static { this.prototype.name = "ApiError"; }
    /** The HTTP status. */
    status;
    /** The `error` of the response; empty if the response is not from the API. */
    body;
    /** The headers of the response. */
    headers;
    /** How long the API asks to wait before another attempt, in milliseconds. */
    retryAfter;
    constructor({ status, body = {}, headers = new Headers(), retryAfter }) {
        const code = body.code ?? `HTTP_${status}`;
        const details = (body.details ?? []).map((d) => `; ${d.field}: ${d.message}`).join("");
        const request = body.requestId ? ` [request ${body.requestId}]` : "";
        super(`${body.message ?? "Something other than the API answered."} (${code})${details}${request}`);
        [this.status, this.body, this.headers, this.retryAfter] = [status, body, headers, retryAfter];
    }
    /** The error code. Codes such as `HTTP_502` are for responses of a proxy. */
    get code() { return this.body.code ?? `HTTP_${this.status}`; }
    /** The invalid fields; often empty. */
    get details() { return this.body.details ?? []; }
    /** Identifies the request in the logs of the service; empty for a response of a proxy. */
    get requestId() { return this.body.requestId ?? this.headers.get("X-Request-Id") ?? ""; }
    /** After a 412, the current version of the record, for `ifMatch`. */
    get etag() { return this.headers.get("ETag") ?? undefined; }
    /** The address of the page that explains `code`, if the deployment has one. */
    get docUrl() { return this.body.docUrl; }
    /** With `CURSOR_AHEAD`, the `after` with which to resume reading the feed. */
    get restartAfter() { return this.body.restartAfter; }
}
exports.ApiError = ApiError;
/** 401: the key is missing, wrong, expired or revoked. */
class AuthenticationError extends ApiError {
    static { this.prototype.name = "AuthenticationError"; }
}
exports.AuthenticationError = AuthenticationError;
/** 403: the plan, the scopes or the role of the key do not allow this, or a quota is used up. */
class PermissionError extends ApiError {
    static { this.prototype.name = "PermissionError"; }
}
exports.PermissionError = PermissionError;
/** 404: there is no such record, or it belongs to another account. */
class NotFoundError extends ApiError {
    static { this.prototype.name = "NotFoundError"; }
}
exports.NotFoundError = NotFoundError;
/** 400, 413, 415, 422 or 431: the request is invalid; `details` names the fields. */
class ValidationError extends ApiError {
    static { this.prototype.name = "ValidationError"; }
}
exports.ValidationError = ValidationError;
/** 409, or 412 if `ifMatch` no longer matches: the request conflicts with the current state. */
class ConflictError extends ApiError {
    static { this.prototype.name = "ConflictError"; }
}
exports.ConflictError = ConflictError;
/**
 * 410: it no longer exists. With `CURSOR_AHEAD`, the service was restored from a backup, and the restore has removed
 * the position in the feed. Resume after `restartAfter`.
 */
class GoneError extends ApiError {
    static { this.prototype.name = "GoneError"; }
}
exports.GoneError = GoneError;
/** 429, after all attempts: the next call may succeed after `retryAfter`. */
class RateLimitError extends ApiError {
    static { this.prototype.name = "RateLimitError"; }
}
exports.RateLimitError = RateLimitError;
/** 5xx, after all attempts. */
class ServerError extends ApiError {
    static { this.prototype.name = "ServerError"; }
}
exports.ServerError = ServerError;
/** 304: the record still has the `ETag` that was sent as `ifNoneMatch`. */
class NotModifiedError extends ApiError {
    static { this.prototype.name = "NotModifiedError"; }
}
exports.NotModifiedError = NotModifiedError;
const byStatus = {
    304: NotModifiedError, 400: ValidationError, 401: AuthenticationError, 403: PermissionError, 404: NotFoundError, 409: ConflictError,
    410: GoneError, 412: ConflictError, 413: ValidationError, 415: ValidationError, 422: ValidationError, 429: RateLimitError, 431: ValidationError,
};
/** Returns an error of the class for a status. */
function apiError(refusal) {
    const kind = byStatus[refusal.status] ?? (refusal.status >= 500 ? ServerError : ApiError);
    return new kind(refusal);
}
/**
 * No attempt received a usable response: the connection failed or broke, or the response was
 * not JSON of the API. The call may have taken effect.
 */
class ConnectionError extends LinkreelError {
    static { this.prototype.name = "ConnectionError"; }
}
exports.ConnectionError = ConnectionError;
/** The last attempt, or a whole wait, took longer than its `timeout`. */
class TimeoutError extends ConnectionError {
    static { this.prototype.name = "TimeoutError"; }
}
exports.TimeoutError = TimeoutError;
/** The caller's `signal` ended the call. `cause` is the signal's reason. */
class CancelledError extends LinkreelError {
    // The name that programs check after an abort.
    static { this.prototype.name = "AbortError"; }
}
exports.CancelledError = CancelledError;
/** Returns the error for an aborted signal, which may also be a time limit. */
function cancelled(signal) {
    const cause = signal.reason;
    if (cause instanceof Error && cause.name === "TimeoutError")
        return new TimeoutError("The signal's time is over.", { cause });
    return new CancelledError("The call was cancelled.", { cause });
}
/** A video that could not be prepared. */
class VideoFailedError extends LinkreelError {
    video;
    static { this.prototype.name = "VideoFailedError"; }
    constructor(video) {
        super(`${video.error?.message ?? "The video failed."} (${video.error?.code ?? "INTERNAL"})`);
        this.video = video;
    }
    /** The reason, such as `NOT_A_VIDEO`. */
    get code() { return this.video.error?.code ?? "INTERNAL"; }
}
exports.VideoFailedError = VideoFailedError;
/** Storage no longer accepts the upload address. Read the video again to get a new address. */
class UploadGoneError extends LinkreelError {
    static { this.prototype.name = "UploadGoneError"; }
}
exports.UploadGoneError = UploadGoneError;
/** An upload that cannot continue although its address is valid. */
class UploadError extends LinkreelError {
    static { this.prototype.name = "UploadError"; }
}
exports.UploadError = UploadError;
/**
 * A request in the middle of a bulk call failed with `cause`. Earlier requests have taken effect.
 * The same call with the same items and `idempotencyKey` resumes without creating a link twice.
 */
class BulkError extends LinkreelError {
    results;
    unsure;
    unsent;
    idempotencyKey;
    static { this.prototype.name = "BulkError"; }
    constructor(
    /** The results so far, in the order of the items, starting with the first. */
    results, 
    /** The items of the failed request, if the request may have taken effect. */
    unsure, 
    /** The items that were certainly not processed. */
    unsent, 
    /** The key with which the same call resumes, for 24 hours. */
    idempotencyKey, cause) {
        super(`${results.length} items are answered, ${unsure.length} may be done, ${unsent.length} are not: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
        this.results = results;
        this.unsure = unsure;
        this.unsent = unsent;
        this.idempotencyKey = idempotencyKey;
    }
}
exports.BulkError = BulkError;
