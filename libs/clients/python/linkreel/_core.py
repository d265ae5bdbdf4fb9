"""What every call has in common: addresses, headers, attempts, errors, pages."""

from __future__ import annotations

import json
import random
import ssl
import time
import urllib.parse
import uuid
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, TypedDict, TypeVar, cast

from ._transport import Cancel, Response, Transport, chunks, split
from ._values import encode, fill, header, query_text
from ._version import __version__
from .errors import (
    APIConnectionError, APIError, LinkreelError, NotFoundError, NotModified, PreconditionFailedError, RateLimitError, UnexpectedAnswerError,
    api_error,
)

T = TypeVar("T")


class AsyncOptions(TypedDict, total=False):
    """Settings of one call, the last argument of every method. All are optional."""

    #: Seconds that each attempt may take. Default: the client's timeout.
    timeout: float
    #: Seconds that the whole call may take, with all attempts and waits. Default: no limit.
    total_timeout: float
    #: How often the call is tried. Default: the client's attempts.
    attempts: int
    #: The Idempotency-Key of a POST. Default: a new one for each call, the same in all attempts.
    idempotency_key: str
    #: Change the record only if it still has this ETag (PreconditionFailedError).
    if_match: str
    #: Read the record only if it no longer has this ETag (NotModified).
    if_none_match: str
    #: More headers.
    headers: Mapping[str, str]
    #: Called with the final response, whether it is a success or an error.
    on_response: Callable[[Response], None]


class Options(AsyncOptions, total=False):
    """Settings of one call, the last argument of every method. All are optional."""

    #: Lets another thread end the call.
    cancel: Cancel


@dataclass(frozen=True)
class Call:
    """One call: what to send, and how to read the answer."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""
    removes: bool = False  # the answer is empty, and a record that is not there is as good
    once: bool = False  # the service would not recognize it when it comes again


class Core:
    """The base of Client. Its methods are for the generated ones."""

    def __init__(self, base_url: str, key: Optional[str] = None, *, timeout: float = 30.0, attempts: int = 5, max_wait: float = 60.0,
                 headers: Optional[Mapping[str, str]] = None, user_agent: str = "", proxies: Optional[Mapping[str, str]] = None,
                 ssl_context: Optional[ssl.SSLContext] = None) -> None:
        self._base = _base(base_url)
        self._headers = {"User-Agent": user_agent or "linkreel-python/" + __version__, **(headers or {})}
        if key is not None:
            self._headers["Authorization"] = "Bearer " + _key(key)
        if timeout <= 0 or attempts < 1:
            raise ValueError("timeout must be greater than 0, and attempts at least 1.")
        self._timeout, self._attempts, self._max_wait = timeout, attempts, max_wait
        self._transport = Transport(ssl_context, proxies)
        self._clock: Callable[[], float] = time.monotonic
        self._sleep: Callable[[float, Cancel], None] = _sleep

    def close(self) -> None:
        """Close all connections. Calls in other threads, and later ones, end with ClosedError."""
        self._transport.close()

    # -- for the generated methods --------------------------------------------

    def _json(self, method: str, path: str, parameters: Optional[Mapping[str, str]] = None, *, query: Optional[Mapping[str, Any]] = None,
              body: object = None, content: Optional[bytes] = None, content_type: str = "application/json",
              link: bool = False, once: bool = False, options: Optional[Options] = None) -> Any:
        """A call whose answer is a JSON object. With link, the answer gets hasMore and nextCursor from the header Link.

        With once, it is not repeated when an attempt may have taken effect.
        """
        call = self._call(method, fill(path, parameters), query, body, content, content_type, options, once=once)
        return self._exchange(call, _page if link else _object, options)

    def _none(self, method: str, path: str, parameters: Optional[Mapping[str, str]] = None, *, query: Optional[Mapping[str, Any]] = None,
              body: object = None, once: bool = False, options: Optional[Options] = None) -> None:
        """A call whose answer is empty."""
        call = self._call(method, fill(path, parameters), query, body, None, "application/json", options, once=once)
        try:
            self._exchange(replace(call, removes=method == "DELETE"), _nothing, options)
        except _Removed:
            pass

    def _bytes(self, method: str, path: str, parameters: Optional[Mapping[str, str]] = None, *, accept: "tuple[str, ...]",
               query: Optional[Mapping[str, Any]] = None, options: Optional[Options] = None) -> bytes:
        """A call whose answer has one of the media types of accept."""
        call = self._call(method, fill(path, parameters), query, None, None, "", options, accept)

        def content(response: Response) -> bytes:
            if response.headers.get("content-type", "").split(";")[0].strip() not in accept:
                raise unexpected(response)
            return response.body
        return self._exchange(call, content, options)

    def _lines(self, method: str, path: str, parameters: Optional[Mapping[str, str]] = None, *, accept: "tuple[str, ...]",
               query: Optional[Mapping[str, Any]] = None, options: Optional[Options] = None) -> Iterator[Any]:
        """A call whose answer is JSON Lines, read as it arrives. Once it has begun, it is not tried again."""
        call = self._call(method, fill(path, parameters), query, None, None, "", options, accept)
        attempts = _Attempts(self, call, options)
        while True:
            try:
                with self._transport.stream(call.method, call.url, call.headers, attempts.timeout(), attempts.cancel) as stream:
                    if stream.status != 200 or stream.headers.get("content-type", "").split(";")[0].strip() not in accept:
                        response = stream.rest()
                        raise _refusal(response, self._base) or unexpected(response)
                    attempts.tell(Response(stream.status, stream.headers, b"", attempts.made))
                    attempts.last = True
                    for line in stream.lines():
                        yield _line(line)
                return
            except LinkreelError as error:
                attempts.wait(error)

    def _pages(self, path: str, parameters: Optional[Mapping[str, str]] = None, *, query: Optional[Mapping[str, Any]] = None,
               link: bool = False, options: Optional[Options] = None) -> Iterator[Any]:
        """The records of all pages of a list."""
        cursor = None
        while True:
            page = self._json("GET", path, parameters, query={**(query or {}), "cursor": cursor}, link=link, options=options)
            yield from page["data"]
            cursor = page.get("nextCursor")
            if cursor is None or not page.get("hasMore"):
                return

    # -- one call ---------------------------------------------------------------

    def _call(self, method: str, path: str, query: Optional[Mapping[str, Any]], body: object, content: Optional[bytes],
              content_type: str, options: Optional[Options], accept: "tuple[str, ...]" = ("application/json",), once: bool = False) -> Call:
        given: Options = options or {}
        if strange := set(given) - Options.__optional_keys__:
            raise TypeError("There is no option %s." % ", ".join(sorted(strange)))
        headers = {**self._headers, "Accept": ", ".join(accept), **given.get("headers", {})}
        if body is not None:
            content = encode(body)
        if content is not None:
            headers["Content-Type"] = content_type
        if content or method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = str(len(content or b""))
        if method == "POST" and not once:
            headers["Idempotency-Key"] = given.get("idempotency_key") or str(uuid.uuid4())
        if "if_match" in given:
            headers["If-Match"] = given["if_match"]
        if "if_none_match" in given:
            headers["If-None-Match"] = given["if_none_match"]
        checked = {name: header(name, value) for name, value in headers.items()}
        return Call(method, self._base + path + query_text(query), checked, content or b"", once=once)

    def _exchange(self, call: Call, read: Callable[[Response], T], options: Optional[Options]) -> T:
        """Send a call until an answer decides it, and read that answer."""
        attempts = _Attempts(self, call, options)
        while True:
            try:
                response = self._transport.send(
                    call.method, call.url, call.headers, chunks(call.body), attempts.timeout(), attempts.cancel)
                response = replace(response, attempts=attempts.made)
                refusal = _refusal(response, self._base)
                value = None if refusal else read(response)
            except APIConnectionError as error:
                attempts.wait(error)
                continue
            if refusal is not None:
                attempts.wait(refusal, response)
                continue
            attempts.tell(response)
            return value  # type: ignore[return-value] # read has made it


class _Removed(LinkreelError):
    """An earlier attempt, whose answer was lost, has deleted the record."""


class _Attempts:
    """The attempts of one call."""

    def __init__(self, core: Core, call: Call, options: Optional[Options]) -> None:
        given: Options = options or {}
        self._core, self._call = core, call
        self._each = given.get("timeout", core._timeout)
        self._end = core._clock() + given["total_timeout"] if "total_timeout" in given else None
        self._most = given.get("attempts", core._attempts)
        self._told = given.get("on_response")
        self._unsure: Optional[LinkreelError] = None  # the error of an attempt that may have made the change
        self._renewed = False  # a kept connection that had ended was replaced, which is no attempt
        self.cancel = given.get("cancel") or Cancel()
        self.made = 0
        self.last = False  # no further attempt, whatever happens

    def timeout(self) -> float:
        """Begin an attempt: the seconds that it has."""
        self.made += 1
        if self._end is None:
            return self._each
        return max(min(self._each, self._end - self._core._clock()), 0.001)

    def tell(self, response: Optional[Response]) -> None:
        """Show the caller the answer that decides."""
        if self._told is not None and response is not None:
            self._told(response)

    def wait(self, error: LinkreelError, response: Optional[Response] = None) -> None:
        """Wait for the next attempt, or raise the error if there is none."""
        if self._unsure and self._call.removes and isinstance(error, NotFoundError):
            self.tell(response)
            raise _Removed from None
        if self._unsure and not self._call.removes and "If-Match" in self._call.headers and isinstance(error, PreconditionFailedError):
            self.tell(response)
            raise APIConnectionError("The record has another version, perhaps through this call: an earlier attempt got no answer and may have "
                                     "taken effect. Read the record.") from self._unsure
        if isinstance(error, APIConnectionError) and error._stale and not self._renewed and not self._call.once:
            self._renewed, self._unsure = True, error
            self.made -= 1
            return
        seconds = self._pause(error)
        if seconds is None:
            self.tell(response)
            raise error
        if not isinstance(error, RateLimitError):
            self._unsure = error
        self._core._sleep(seconds, self.cancel)

    def _pause(self, error: LinkreelError) -> Optional[float]:
        """Seconds until the next attempt; None if there is none."""
        if self.last or self.made >= self._most or not again(error):
            return None
        if self._call.once and not isinstance(error, RateLimitError):
            return None
        # The waits are random, so that many clients do not come back together.
        seconds = min(0.2 * 2.0 ** (self.made - 1), 10.0) * random.uniform(0.5, 1.0)
        asked = error.retry_after if isinstance(error, APIError) else None
        if asked is not None:
            if asked > self._core._max_wait:
                return None
            seconds = max(seconds, asked)
        if self._end is not None and self._core._clock() + seconds >= self._end:
            return None
        return seconds


def again(error: LinkreelError) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(error, APIError):
        return error.status in (408, 425, 429) or error.status >= 500 or error.code == "IDEMPOTENCY_IN_PROGRESS"
    return isinstance(error, APIConnectionError)


def shared(core: Core, options: Optional[Options]) -> Callable[[], Options]:
    """The options of each request of a call that makes several: they share its total_timeout."""
    given: Options = options or {}
    if "total_timeout" not in given:
        return lambda: given
    end = core._clock() + given["total_timeout"]
    return lambda: cast(Options, {**given, "total_timeout": max(end - core._clock(), 0.001)})


def _sleep(seconds: float, cancel: Cancel) -> None:
    cancel.sleep(seconds)


def _refusal(response: Response, base: str) -> Optional[LinkreelError]:
    """The error of a response that is no success; None for a success."""
    if response.status < 300:
        return None
    if response.status == 304:
        return NotModified("The record has not changed.")
    error: Any = None
    try:
        error = json.loads(response.body)["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        pass  # a proxy answered
    if not isinstance(error, dict):
        error = {}
    if str(error.get("docUrl", "")).startswith("/"):
        error["docUrl"] = base + error["docUrl"]
    return api_error(response.status, error, request_id=response.request_id,
                     retry_after=retry_after(response.headers.get("retry-after", "")), etag=response.headers.get("etag", ""))


def retry_after(text: str) -> Optional[float]:
    """The seconds that a Retry-After asks for, in either of its forms."""
    if text.isascii() and text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def unexpected(response: Response) -> UnexpectedAnswerError:
    kind = response.headers.get("content-type", "no content type")
    return UnexpectedAnswerError(
        "The response has status %d and %s, which the API never sends here. Check the base URL, and whether a proxy or the "
        "sign-in page of a network answers instead." % (response.status, kind))


def _object(response: Response) -> Any:
    try:
        value = json.loads(response.body)
    except (ValueError, RecursionError):
        raise unexpected(response) from None
    if not isinstance(value, dict):
        raise unexpected(response)
    return value


def object_or_none(response: Response) -> Any:
    """The JSON object of an answer, None if it is empty."""
    return _object(response) if response.body else None


def _page(response: Response) -> Any:
    page = _object(response)
    page["nextCursor"] = _next(response.headers.get("link", ""))
    page["hasMore"] = page["nextCursor"] is not None
    return page


def _next(link: str) -> Optional[str]:
    """The cursor in a header Link with rel="next"."""
    for part in link.split(","):
        target, _, parameters = part.strip().partition(";")
        if 'rel="next"' in parameters.replace(" ", ""):
            query = urllib.parse.urlsplit(target.strip("<> ")).query
            return next(iter(urllib.parse.parse_qs(query).get("cursor", [])), None)
    return None


def _nothing(response: Response) -> None:
    if response.status != 204:
        raise unexpected(response)


def _line(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise APIConnectionError("The response was cut off in the middle of a line.") from None


def _base(base_url: str) -> str:
    base_url = base_url.strip().rstrip("/")
    try:
        split(base_url)
        parts = urllib.parse.urlsplit(base_url)
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError
    except ValueError:
        raise ValueError("base_url must be an address such as https://linkreel.example, without user, query or fragment.") from None
    return base_url


def _key(key: str) -> str:
    """A key, perhaps from a file with a newline at its end. The errors never contain it."""
    key = key.strip()
    if not key:
        raise ValueError("The key is empty. Pass an API key such as lr_live_…, or None for calls that need no key.")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("The key contains a character that no key has, such as a line break in the middle. Check where it is read from.")
    return key


def cut(items: "list[Any]", most: int, room: int) -> "Iterable[tuple[int, int]]":
    """Ranges of at most that many items whose JSON together is smaller than that many bytes."""
    start, size = 0, 0
    for i, item in enumerate(items):
        length = len(encode(item)) + 1
        if i > start and (i - start == most or size + length > room):
            yield start, i
            start, size = i, 0
        size += length
    if start < len(items):
        yield start, len(items)
