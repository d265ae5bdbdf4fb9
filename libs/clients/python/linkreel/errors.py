"""The exceptions of this package. All of them are a LinkreelError."""

from __future__ import annotations

from typing import Any, Optional, Sequence

__all__ = [
    "LinkreelError", "APIError", "AuthenticationError", "PermissionDeniedError", "NotFoundError", "GoneError",
    "ValidationError", "ConflictError", "PreconditionFailedError", "RateLimitError", "ServerError", "NotModified",
    "CursorLostError", "APIConnectionError", "APITimeoutError", "UnexpectedAnswerError", "Cancelled", "ClosedError", "UploadError",
    "UploadGoneError", "VideoFailedError", "WaitTimeout", "BulkError", "WebhookError",
]


class LinkreelError(Exception):
    """The base class of every exception that this package defines.

    ``video`` is the record that upload_video had created before it failed, or None.
    """

    video: Any = None


class APIError(LinkreelError):
    """The API refused a call.

    Branch on the class or on ``code``. ``message`` is for people and may change. ``details``
    names each wrong field: a list of dicts with field, code and message. ``doc_url`` is the address
    of the page that explains the code. ``retry_after`` is in seconds. ``etag`` is, after a 412, the version that the
    record has now, for ``if_match``. ``error`` is the whole error object.
    If something other than the API answered, such as a proxy, the code is HTTP_ and the status.
    """

    def __init__(self, status: int, error: "dict[str, Any]", *, request_id: str = "", retry_after: Optional[float] = None,
                 etag: str = "") -> None:
        self.status = status
        self.error = error
        self.etag = etag
        self.code = _text(error.get("code")) or "HTTP_%d" % status
        self.message = _text(error.get("message")) or "The server answered with status %d." % status
        self.request_id = _text(error.get("requestId")) or request_id
        self.doc_url = _text(error.get("docUrl"))
        details = error.get("details")
        self.details: "list[dict[str, Any]]" = [d for d in details if isinstance(d, dict)] if isinstance(details, list) else []
        self.retry_after = retry_after
        text = "%s (%s)" % (self.message, self.code)
        text += "".join("; %s: %s" % (d.get("field"), d.get("message")) for d in self.details)
        if self.request_id:
            text += " [request %s]" % self.request_id
        if self.doc_url:
            text += " See " + self.doc_url
        super().__init__(text)


class AuthenticationError(APIError):
    """401: there is no key, or it is wrong, expired or revoked."""


class PermissionDeniedError(APIError):
    """403: the plan, the key's scopes or the member's role do not allow this, or a quota is exhausted."""


class NotFoundError(APIError):
    """404: the record does not exist, or belongs to another account."""


class GoneError(APIError):
    """410: the record is no longer available."""


class CursorLostError(APIError):
    """The feed of events does not know the cursor from which you want to continue.

    Events are kept for 30 days. Read your records again, then follow the feed without ``after``.
    If the code is CURSOR_AHEAD, the service was restored from a backup and the cursor is of the time
    that it lost: follow the feed from ``error["restartAfter"]``.
    """


class ValidationError(APIError):
    """400, 405, 413, 415, 422 or another 4xx: the request itself is wrong; ``details`` names the fields."""


class ConflictError(APIError):
    """409: the request contradicts another record, such as a slug that is taken."""


class PreconditionFailedError(APIError):
    """412: the record has changed since you read the ETag that you sent as ``if_match``.

    If an earlier attempt of the call may have changed it, APIConnectionError is raised instead.
    """


class RateLimitError(APIError):
    """429: too many requests. Either every attempt was refused, or the wait would exceed ``max_wait``."""


class ServerError(APIError):
    """5xx: the service failed in every attempt."""


class NotModified(LinkreelError):
    """304: the record still has the ETag that you sent as ``if_none_match``."""


class APIConnectionError(LinkreelError):
    """No attempt got a complete response. The call may have taken effect."""

    _stale = False  # the server had closed the kept connection, perhaps before it saw the request


class APITimeoutError(APIConnectionError, TimeoutError):
    """No attempt got a complete response in time. The call may have taken effect."""


class UnexpectedAnswerError(APIConnectionError):
    """Something other than the API answered: the response is not what the API promises.

    Check the base URL, and whether a proxy or the sign-in page of a network answers instead.
    """


class Cancelled(LinkreelError):
    """The call was cancelled through its ``cancel`` option. It may have taken effect."""


class ClosedError(LinkreelError):
    """The client was closed, before the call or during it. A call that was running may have taken effect."""


class UploadError(LinkreelError):
    """Object storage did not accept the file. ``status`` is its last status, 0 if it never answered."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class UploadGoneError(UploadError):
    """The upload address no longer works. Read the video again to get a new one."""


class VideoFailedError(LinkreelError):
    """A video could not be prepared. ``code`` says why; ``video`` is the record."""

    def __init__(self, video: Any) -> None:
        error = video.get("error") or {}
        self.video = video
        self.code = _text(error.get("code")) or "INTERNAL"
        self.message = _text(error.get("message")) or "The video failed."
        super().__init__("%s (%s)" % (self.message, self.code))


class WaitTimeout(LinkreelError, TimeoutError):
    """A video was not ready in time. ``video`` is the record as last read."""

    def __init__(self, video: Any, seconds: float) -> None:
        self.video = video
        super().__init__("The video is still %s after %g seconds. Processing continues; call wait_until_ready again." % (video.get("status"), seconds))


class BulkError(LinkreelError):
    """A bulk call stopped halfway. ``__cause__`` is the error that stopped it.

    ``results`` has the results so far, in the order of the items. ``unsure`` has the items of the
    request that failed, which may or may not have taken effect. ``unsent`` has the remaining items.
    To continue, repeat the call with ``options={"idempotency_key": error.idempotency_key}``. Within
    24 hours this creates and deletes nothing twice, and returns all results.
    """

    def __init__(self, cause: Exception, results: "Sequence[Any]", unsure: "Sequence[Any]", unsent: "Sequence[Any]",
                 idempotency_key: str) -> None:
        self.results = list(results)
        self.unsure = list(unsure)
        self.unsent = list(unsent)
        self.idempotency_key = idempotency_key
        super().__init__("Stopped after %d results. %d items may have taken effect, and %d were not sent: %s"
                         % (len(self.results), len(self.unsure), len(self.unsent), cause))


class WebhookError(LinkreelError):
    """A webhook message was not verified. ``reason`` says why.

    It is one of bad_secret, missing_header, bad_timestamp, too_old, in_future, no_match and bad_body.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def api_error(status: int, error: "dict[str, Any]", *, request_id: str = "", retry_after: Optional[float] = None, etag: str = "") -> APIError:
    """Return an error of the class for the status."""
    kind = _BY_STATUS.get(status)
    if kind is None:
        kind = ServerError if status >= 500 else ValidationError if status >= 400 else APIError
    return kind(status, error, request_id=request_id, retry_after=retry_after, etag=etag)


_BY_STATUS: "dict[int, type[APIError]]" = {
    401: AuthenticationError, 403: PermissionDeniedError, 404: NotFoundError, 409: ConflictError, 410: GoneError,
    412: PreconditionFailedError, 429: RateLimitError,
}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
