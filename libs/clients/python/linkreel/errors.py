"""The exceptions of this package. All of them are a LinkreelError."""

from __future__ import annotations

from typing import Any, Optional, Sequence

__all__ = [
    "LinkreelError", "APIError", "AuthenticationError", "PermissionDeniedError", "NotFoundError", "GoneError",
    "ValidationError", "ConflictError", "PreconditionFailedError", "RateLimitError", "ServerError", "NotModified",
    "CursorLostError", "APIConnectionError", "APITimeoutError", "UnexpectedAnswerError", "Cancelled", "UploadError",
    "UploadGoneError", "VideoFailedError", "WaitTimeout", "BulkError", "WebhookError",
]


class LinkreelError(Exception):
    """The base class of every exception that this package defines."""


class APIError(LinkreelError):
    """The API refused a call.

    Branch on the class or on ``code``. ``message`` is for people and may change. ``details``
    names each wrong field: a list of dicts with field, code and message. ``doc_url`` is the page
    that explains the code. ``retry_after`` is in seconds. ``error`` is the whole error object.
    If something other than the API answered, such as a proxy, the code is HTTP_ and the status.
    """

    def __init__(self, status: int, error: "dict[str, Any]", *, request_id: str = "", retry_after: Optional[float] = None) -> None:
        self.status = status
        self.error = error
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
        super().__init__(text)


class AuthenticationError(APIError):
    """401: there is no key, or it is wrong, expired or revoked."""


class PermissionDeniedError(APIError):
    """403: the plan, the key's scopes or the member's role do not allow this, or a quota is used up."""


class NotFoundError(APIError):
    """404: the record does not exist, or belongs to another account."""


class GoneError(APIError):
    """410: the record is no longer available."""


class CursorLostError(APIError):
    """The feed of events no longer has the place at which you want to continue.

    Events are kept for 30 days. Read your records anew, then follow the feed without ``after``.
    """


class ValidationError(APIError):
    """400, 405, 413, 415, 422 or another 4xx: the request itself is wrong; ``details`` names the fields."""


class ConflictError(APIError):
    """409: the request contradicts another record, such as a slug that is taken."""


class PreconditionFailedError(APIError):
    """412: the record has changed since you read the ETag that you sent as ``if_match``."""


class RateLimitError(APIError):
    """429: too many requests, and the wait would be longer than the client may wait."""


class ServerError(APIError):
    """5xx: the service failed, and kept failing in every attempt."""


class NotModified(LinkreelError):
    """304: the record still has the ETag that you sent as ``if_none_match``."""


class APIConnectionError(LinkreelError):
    """No attempt got a whole answer. A change may or may not have been made."""

    _stale = False  # the server had closed the kept connection, perhaps before it saw the request


class APITimeoutError(APIConnectionError, TimeoutError):
    """No attempt got a whole answer in time. A change may or may not have been made."""


class UnexpectedAnswerError(APIConnectionError):
    """What answered is not the API: there is no JSON where the API promises it.

    Check the base URL, and whether a proxy or a sign-in page of the network answers in its place.
    """


class Cancelled(LinkreelError):
    """The call was cancelled by its ``cancel`` option. A change may or may not have been made."""


class UploadError(LinkreelError):
    """Object storage did not take the file. ``status`` is its last answer, 0 if there was none."""

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
    """A video was not ready in time. ``video`` is the record as it was read last."""

    def __init__(self, video: Any, seconds: float) -> None:
        self.video = video
        super().__init__("The video is still %s after %g seconds. It goes on; wait again." % (video.get("status"), seconds))


class BulkError(LinkreelError):
    """A bulk call stopped halfway. ``__cause__`` is the error that stopped it.

    ``results`` has the results so far, in the order of the items. ``unsure`` has the items of the
    request that failed: they may or may not be done. ``unsent`` has the items after them. To go
    on, make the same call again with ``options={"idempotency_key": error.idempotency_key}``: what
    is done is not done twice, and you get all results. That works for 24 hours.
    """

    def __init__(self, cause: LinkreelError, results: "Sequence[Any]", unsure: "Sequence[Any]", unsent: "Sequence[Any]",
                 idempotency_key: str) -> None:
        self.results = list(results)
        self.unsure = list(unsure)
        self.unsent = list(unsent)
        self.idempotency_key = idempotency_key
        super().__init__("Stopped after %d results; %d items may or may not be done, %d were not sent: %s"
                         % (len(self.results), len(self.unsure), len(self.unsent), cause))


class WebhookError(LinkreelError):
    """A webhook message was not verified. ``reason`` says why.

    It is one of bad_secret, missing_header, bad_timestamp, too_old, in_future, no_match and bad_body.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def api_error(status: int, error: "dict[str, Any]", *, request_id: str = "", retry_after: Optional[float] = None) -> APIError:
    """The error of the class that fits the status."""
    kind = _BY_STATUS.get(status)
    if kind is None:
        kind = ServerError if status >= 500 else ValidationError if status >= 400 else APIError
    return kind(status, error, request_id=request_id, retry_after=retry_after)


_BY_STATUS: "dict[int, type[APIError]]" = {
    401: AuthenticationError, 403: PermissionDeniedError, 404: NotFoundError, 409: ConflictError, 410: GoneError,
    412: PreconditionFailedError, 429: RateLimitError,
}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
