"""Linkreel: short links and shareable videos.

    from linkreel import Client

    client = Client("https://linkreel.example", "lr_live_…")
    print(client.create_link("https://example.com/spring", slug="spring")["shortUrl"])

    video = client.upload_video("demo.mp4", title="Demo")    # waits until it can be played
    print(video["shareUrl"])

    for link in client.links(q="spring"):                    # reads page after page
        print(link["slug"], link["clicks"])

Every operation of the API is a method; AsyncClient has the same for asyncio. Answers are the API's
JSON objects, as dicts with types (linkreel.types). Calls are retried after lost and cut answers,
429 and 5xx, as Retry-After says. POSTs have an Idempotency-Key, so that nothing is made twice; the few
that take none are not repeated when an attempt may have taken effect.
All exceptions are LinkreelError. Needs Python 3.10 or newer, and nothing else.
"""

from . import types
from ._core import AsyncOptions, Options
from ._feed import EventFeed
from ._transport import Cancel, RateLimit, Response
from ._values import UNSET, Day, Time, Unset
from ._version import __version__
from ._webhooks import WebhookMessage, receive_webhook, verify_webhook
from .async_client import AsyncClient, AsyncEventFeed
from .client import Client
from .errors import (
    APIConnectionError, APIError, APITimeoutError, AuthenticationError, BulkError, Cancelled, ClosedError, ConflictError, CursorLostError,
    GoneError, LinkreelError, NotFoundError, NotModified, PermissionDeniedError, PreconditionFailedError, RateLimitError, ServerError,
    UnexpectedAnswerError, UploadError, UploadGoneError, ValidationError, VideoFailedError, WaitTimeout, WebhookError,
)

__all__ = [
    "APIConnectionError", "APIError", "APITimeoutError", "AsyncClient", "AsyncEventFeed", "AsyncOptions", "AuthenticationError",
    "BulkError", "Cancel", "Cancelled", "Client", "ClosedError", "ConflictError", "CursorLostError", "Day", "EventFeed", "GoneError", "LinkreelError",
    "NotFoundError", "NotModified", "Options", "PermissionDeniedError", "PreconditionFailedError", "RateLimit", "RateLimitError",
    "Response", "ServerError", "Time", "UNSET", "UnexpectedAnswerError", "Unset", "UploadError", "UploadGoneError", "ValidationError",
    "VideoFailedError", "WaitTimeout", "WebhookError", "WebhookMessage", "__version__", "receive_webhook", "types", "verify_webhook",
]
