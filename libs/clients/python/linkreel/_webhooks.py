"""Verification of webhook messages, which follow Standard Webhooks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Iterable, Optional, Protocol, Sequence, Union

from .errors import WebhookError


class _Items(Protocol):
    def items(self) -> Iterable["tuple[Any, Any]"]: ...


#: The headers of a request, as any framework has them: a mapping, or pairs of name and value.
Headers = Union[_Items, Iterable["tuple[Any, Any]"]]


@dataclass(frozen=True)
class WebhookMessage:
    """A verified message. A message that is sent again has the same ``id``: remember what you have handled."""

    id: str
    type: str
    sent_at: datetime
    data: "dict[str, Any]"


def verify_webhook(secret: "Union[str, Sequence[str]]", headers: Headers, body: Union[bytes, str], *, tolerance: float = 300,
                   now: Optional[float] = None) -> bool:
    """Whether a message is recent and comes from the deployment that gave you ``secret``.

    ``headers`` is a mapping or a list of pairs, with names in any case, as text or bytes. ``body``
    is the unchanged body of the request: read it before anything parses it. While you change the
    secret, give the old and the new one. ``tolerance`` is in seconds. To learn why a message is
    refused, use receive_webhook.
    """
    try:
        _verify(secret, headers, body, tolerance, now)
    except WebhookError:
        return False
    return True


def receive_webhook(secret: "Union[str, Sequence[str]]", headers: Headers, body: Union[bytes, str], *, tolerance: float = 300,
                 now: Optional[float] = None) -> WebhookMessage:
    """Verify a message as verify_webhook does, and read it. WebhookError says why it is refused."""
    message_id = _verify(secret, headers, body, tolerance, now)
    try:
        message = json.loads(body)
        sent = datetime.fromisoformat(message["timestamp"].replace("Z", "+00:00")).astimezone(timezone.utc)
        kind, data = message["type"], message["data"]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise WebhookError("bad_body", "The signature matches, but the body is not a webhook message.") from None
    return WebhookMessage(message_id, kind, sent, data)


def _verify(secret: "Union[str, Sequence[str]]", headers: Headers, body: Union[bytes, str], tolerance: float, now: Optional[float]) -> str:
    keys = [_key(one) for one in ([secret] if isinstance(secret, str) else secret)]
    if not keys:
        raise WebhookError("bad_secret", "There is no secret. Pass the one that create_webhook returned.")
    fields = _fields(headers)
    missing = [name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not fields.get(name)]
    if missing:
        raise WebhookError("missing_header", "The request does not have the header %s." % ", ".join(missing))
    message_id, stamp = fields["webhook-id"], fields["webhook-timestamp"]
    if not stamp.isascii() or not stamp.isdigit() or len(stamp) > 15:
        raise WebhookError("bad_timestamp", "The header webhook-timestamp is not a number of seconds.")
    age = (time.time() if now is None else now) - int(stamp)
    if age > tolerance:
        raise WebhookError("too_old", "The message was signed %d seconds ago, and at most %d are allowed. Check this machine's clock."
                           % (age, tolerance))
    if -age > tolerance:
        raise WebhookError("in_future", "The message's timestamp is %d seconds in the future. Check this machine's clock." % -age)
    raw = body.encode("utf-8", "replace") if isinstance(body, str) else bytes(body)
    signed = ("%s.%s." % (message_id, stamp)).encode("utf-8", "replace") + raw
    wanted = [b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()) for key in keys]
    given = fields["webhook-signature"].encode("utf-8", "replace").split()
    if not any([hmac.compare_digest(want, one) for want in wanted for one in given]):
        raise WebhookError("no_match", "No signature matches. Use this webhook's secret and the unchanged bytes of the body.")
    return message_id


def _key(secret: str) -> bytes:
    secret = secret.strip()
    try:
        key = base64.b64decode(secret[6:] if secret.startswith("whsec_") else secret, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise WebhookError("bad_secret", "The secret is not valid. Secrets of webhooks begin with whsec_.")
    return key


def _fields(headers: Headers) -> "dict[str, str]":
    items: Any = getattr(headers, "items", None)
    pairs: Any = items() if callable(items) else headers
    return {_word(name).lower(): _word(value) for name, value in pairs}


def _word(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_word(one) for one in value)
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
