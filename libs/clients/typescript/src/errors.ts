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
export class LinkreelError extends Error {
  static { this.prototype.name = "LinkreelError"; }
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
export class ApiError extends LinkreelError {
  static { this.prototype.name = "ApiError"; }
  /** The HTTP status. */
  readonly status: number;
  /** The `error` of the response; empty if the response is not from the API. */
  readonly body: Partial<ErrorBody>;
  /** The headers of the response. */
  readonly headers: Headers;
  /** How long the API asks to wait before another attempt, in milliseconds. */
  readonly retryAfter: number | undefined;

  constructor({ status, body = {}, headers = new Headers(), retryAfter }: Refusal) {
    const code = body.code ?? `HTTP_${status}`;
    const details = (body.details ?? []).map((d) => `; ${d.field}: ${d.message}`).join("");
    const request = body.requestId ? ` [request ${body.requestId}]` : "";
    super(`${body.message ?? "Something other than the API answered."} (${code})${details}${request}`);
    [this.status, this.body, this.headers, this.retryAfter] = [status, body, headers, retryAfter];
  }

  /** The error code. Codes such as `HTTP_502` are for responses of a proxy. */
  get code(): ErrorCode | `HTTP_${number}` { return this.body.code ?? `HTTP_${this.status}`; }
  /** The invalid fields; often empty. */
  get details(): ErrorDetail[] { return this.body.details ?? []; }
  /** Identifies the request in the logs of the service; empty for a response of a proxy. */
  get requestId(): string { return this.body.requestId ?? this.headers.get("X-Request-Id") ?? ""; }
  /** After a 412, the current version of the record, for `ifMatch`. */
  get etag(): string | undefined { return this.headers.get("ETag") ?? undefined; }
  /** The address of the page that explains `code`, if the deployment has one. */
  get docUrl(): string | undefined { return this.body.docUrl; }
  /** With `CURSOR_AHEAD`, the `after` with which to resume reading the feed. */
  get restartAfter(): string | undefined { return this.body.restartAfter; }
}

/** 401: the key is missing, wrong, expired or revoked. */
export class AuthenticationError extends ApiError { static { this.prototype.name = "AuthenticationError"; } }
/** 403: the plan, the scopes or the role of the key do not allow this, or a quota is used up. */
export class PermissionError extends ApiError { static { this.prototype.name = "PermissionError"; } }
/** 404: there is no such record, or it belongs to another account. */
export class NotFoundError extends ApiError { static { this.prototype.name = "NotFoundError"; } }
/** 400, 413, 415, 422 or 431: the request is invalid; `details` names the fields. */
export class ValidationError extends ApiError { static { this.prototype.name = "ValidationError"; } }
/** 409, or 412 if `ifMatch` no longer matches: the request conflicts with the current state. */
export class ConflictError extends ApiError { static { this.prototype.name = "ConflictError"; } }
/**
 * 410: it no longer exists. With `CURSOR_AHEAD`, the service was restored from a backup, and the restore has removed
 * the position in the feed. Resume after `restartAfter`.
 */
export class GoneError extends ApiError { static { this.prototype.name = "GoneError"; } }
/** 429, after all attempts: the next call may succeed after `retryAfter`. */
export class RateLimitError extends ApiError { static { this.prototype.name = "RateLimitError"; } }
/** 5xx, after all attempts. */
export class ServerError extends ApiError { static { this.prototype.name = "ServerError"; } }
/** 304: the record still has the `ETag` that was sent as `ifNoneMatch`. */
export class NotModifiedError extends ApiError { static { this.prototype.name = "NotModifiedError"; } }

const byStatus: Record<number, typeof ApiError> = {
  304: NotModifiedError, 400: ValidationError, 401: AuthenticationError, 403: PermissionError, 404: NotFoundError, 409: ConflictError,
  410: GoneError, 412: ConflictError, 413: ValidationError, 415: ValidationError, 422: ValidationError, 429: RateLimitError, 431: ValidationError,
};

/** Returns an error of the class for a status. */
export function apiError(refusal: Refusal): ApiError {
  const kind = byStatus[refusal.status] ?? (refusal.status >= 500 ? ServerError : ApiError);
  return new kind(refusal);
}

/**
 * No attempt received a usable response: the connection failed or broke, or the response was
 * not JSON of the API. The call may have taken effect.
 */
export class ConnectionError extends LinkreelError { static { this.prototype.name = "ConnectionError"; } }

/** The last attempt, or a whole wait, took longer than its `timeout`. */
export class TimeoutError extends ConnectionError { static { this.prototype.name = "TimeoutError"; } }

/** The caller's `signal` ended the call. `cause` is the signal's reason. */
export class CancelledError extends LinkreelError {
  // The name that programs check after an abort.
  static { this.prototype.name = "AbortError"; }
}

/** Returns the error for an aborted signal, which may also be a time limit. */
export function cancelled(signal: AbortSignal): CancelledError | TimeoutError {
  const cause: unknown = signal.reason;
  if (cause instanceof Error && cause.name === "TimeoutError") return new TimeoutError("The signal's time is over.", { cause });
  return new CancelledError("The call was cancelled.", { cause });
}

/** A video that could not be prepared. */
export class VideoFailedError extends LinkreelError {
  static { this.prototype.name = "VideoFailedError"; }
  constructor(readonly video: Schemas["Video"]) {
    super(`${video.error?.message ?? "The video failed."} (${video.error?.code ?? "INTERNAL"})`);
  }
  /** The reason, such as `NOT_A_VIDEO`. */
  get code(): NonNullable<Schemas["Video"]["error"]>["code"] { return this.video.error?.code ?? "INTERNAL"; }
}

/** Storage no longer accepts the upload address. Read the video again to get a new address. */
export class UploadGoneError extends LinkreelError { static { this.prototype.name = "UploadGoneError"; } }

/** An upload that cannot continue although its address is valid. */
export class UploadError extends LinkreelError { static { this.prototype.name = "UploadError"; } }

/**
 * A request in the middle of a bulk call failed with `cause`. Earlier requests have taken effect.
 * The same call with the same items and `idempotencyKey` resumes without creating a link twice.
 */
export class BulkError<Result, Item> extends LinkreelError {
  static { this.prototype.name = "BulkError"; }
  constructor(
    /** The results so far, in the order of the items, starting with the first. */
    readonly results: Result[],
    /** The items of the failed request, if the request may have taken effect. */
    readonly unsure: Item[],
    /** The items that were certainly not processed. */
    readonly unsent: Item[],
    /** The key with which the same call resumes, for 24 hours. */
    readonly idempotencyKey: string,
    cause: unknown,
  ) {
    super(`${results.length} items are answered, ${unsure.length} may be done, ${unsent.length} are not: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
}
