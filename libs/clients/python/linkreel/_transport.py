"""HTTP over connections that are kept, one for each thread and server."""

from __future__ import annotations

import base64
import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
import weakref
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, Mapping, NamedTuple, Optional, Tuple, cast

from .errors import APIConnectionError, APITimeoutError, Cancelled, ClosedError

_LARGEST = 64 << 20  # no answer of the API is larger
_TOO_LARGE = "The response is larger than 64 MiB."
_clock = threading.local()  # .deadline: when the attempt of this thread has to be over


class RateLimit(NamedTuple):
    """The account's rate limit: requests per minute, requests left, and when it is full again (seconds since 1970)."""

    limit: int
    remaining: int
    reset: int


@dataclass(frozen=True)
class Response:
    """A response, as a call's ``on_response`` receives it. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    attempts: int = 1

    @property
    def request_id(self) -> str:
        """The id of the request in the service's logs; quote it when you ask for help."""
        return self.headers.get("x-request-id", "")

    @property
    def etag(self) -> Optional[str]:
        """The version of the record, for ``if_match`` and ``if_none_match``."""
        return self.headers.get("etag")

    @property
    def rate_limit(self) -> Optional[RateLimit]:
        """The account's rate limit after this request."""
        try:
            return RateLimit(*(int(self.headers["x-ratelimit-" + name]) for name in ("limit", "remaining", "reset")))
        except (KeyError, ValueError):
            return None

    @property
    def replayed(self) -> bool:
        """Whether this is the stored response to an earlier request with the same idempotency key."""
        return self.headers.get("idempotent-replayed") == "true"


class Cancel:
    """Cancels calls from another thread. Pass it as ``options={"cancel": cancel}``."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._sockets: "set[socket.socket]" = set()

    @property
    def cancelled(self) -> bool:
        """Whether cancel was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """End all calls that use this object, now and later. They raise Cancelled."""
        self._event.set()
        with self._lock:
            for sock in self._sockets:
                _shut(sock)

    def sleep(self, seconds: float) -> None:
        """Wait, or raise Cancelled as soon as cancel is called."""
        self._event.wait(seconds)
        self.check()

    def check(self) -> None:
        """Raise Cancelled if cancel was called."""
        if self.cancelled:
            raise Cancelled("The call was cancelled.")

    @contextmanager
    def covers(self, sock: Optional[socket.socket]) -> Iterator[None]:
        """While this holds, cancel also breaks the connection."""
        if sock is None:
            yield
            return
        with self._lock:
            self._sockets.add(sock)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._sockets.discard(sock)


def _shut(sock: socket.socket) -> None:
    try:
        # Of the plain socket: a shutdown of TLS would take the session from the thread that reads.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        pass  # it is closed already


class _Timed(io.RawIOBase):
    """Reads a socket until the attempt's deadline. Without it, a server that sends a byte now and
    then would hold the call for ever, since a socket's own timeout is for each byte."""

    def __init__(self, sock: socket.socket, raw: Any) -> None:
        self._sock, self._raw = sock, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        self._sock.settimeout(_left())
        got: Optional[int] = self._raw.readinto(buffer)
        return got

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


def _left() -> float:
    left: float = _clock.deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout("timed out")
    return left


class _Answer(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Timed(sock, self.fp.detach()))


class _HTTP(http.client.HTTPConnection):
    response_class = _Answer

    def __del__(self) -> None:
        self.close()  # of a thread that has ended


class _HTTPS(http.client.HTTPSConnection):
    response_class = _Answer

    def __del__(self) -> None:
        self.close()


Origin = Tuple[str, str, int]
_Kept = Tuple[http.client.HTTPConnection, bool]


def split(url: str) -> Tuple[Origin, str]:
    """The server of an address, and its path and query. The error does not contain the address."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("The address must start with http:// or https:// and have a host.")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return (parts.scheme, parts.hostname, port), (parts.path or "/") + ("?" + parts.query if parts.query else "")


class Transport:
    """Sends requests, one attempt each. It may be shared by threads; each has its own connections."""

    def __init__(self, context: Optional[ssl.SSLContext], proxies: Optional[Mapping[str, str]]) -> None:
        self._context = context
        self._proxies = proxies
        self._local = threading.local()
        # Each with the process that made it: a forked one has copies, whose sockets are the parent's.
        self._all: "weakref.WeakKeyDictionary[http.client.HTTPConnection, int]" = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Close the connections of all threads."""
        with self._lock:
            self._closed = True
            for connection, process in list(self._all.items()):
                sock = connection.sock
                if sock is not None and process == os.getpid():
                    _shut(sock)
                connection.close()

    def check(self) -> None:
        """Raise ClosedError if close was called."""
        if self._closed:
            raise ClosedError("The client is closed. Create a new one. A call that was running may have taken effect.")

    def send(self, method: str, url: str, headers: Mapping[str, str], body: "Iterable[bytes]", timeout: float,
             cancel: Cancel) -> Response:
        """One attempt: the whole answer, APIConnectionError or Cancelled."""
        with self._attempt(method, url, headers, body, timeout, cancel) as answer:
            if (answer.length or 0) > _LARGEST:
                raise APIConnectionError(_TOO_LARGE)
            if answer.length is not None:
                return Response(answer.status, _lower(answer), answer.read())
            content = bytearray()
            while part := answer.read(1 << 20):
                content += part
                if len(content) > _LARGEST:
                    raise APIConnectionError(_TOO_LARGE)
            return Response(answer.status, _lower(answer), bytes(content))

    @contextmanager
    def stream(self, method: str, url: str, headers: Mapping[str, str], timeout: float, cancel: Cancel) -> "Iterator[Stream]":
        """One attempt whose answer is read line by line; the timeout is for each line."""
        with self._attempt(method, url, headers, (), timeout, cancel) as answer:
            yield Stream(answer, timeout)

    @contextmanager
    def _attempt(self, method: str, url: str, headers: Mapping[str, str], body: "Iterable[bytes]", timeout: float,
                 cancel: Cancel) -> "Iterator[_Answer]":
        self.check()
        cancel.check()
        origin, target = split(url)
        kept = self._kept()
        connection, absolute = kept.pop(origin) if origin in kept else self._new(origin)
        if connection.sock is not None and _readable(connection.sock):
            connection.close()  # the server has ended the kept connection
        old = connection.sock is not None
        _clock.deadline = time.monotonic() + timeout
        keep = False
        try:
            try:
                if connection.sock is None:
                    connection.timeout = timeout
                    connection.connect()
                with cancel.covers(connection.sock):
                    answer = _ask(connection, method, url if absolute else target, headers, body)
                    yield answer
                    keep = answer.isclosed() and not answer.will_close
            except _OfCaller as error:
                raise error.error from error.error.__cause__
            except (OSError, http.client.HTTPException) as error:
                cancel.check()
                self.check()
                named = _named(error, method, origin, timeout)
                named._stale = old and isinstance(error, (ConnectionError, http.client.RemoteDisconnected))
                raise named from error
            except (AttributeError, ValueError):
                self.check()  # close has taken the socket away
                raise
        finally:
            if keep:
                kept[origin] = connection, absolute
            else:
                connection.close()

    def _kept(self) -> Dict[Origin, _Kept]:
        """The idle connections of this thread. An attempt takes its connection out, so that a call
        made while a stream is being read gets another one."""
        if getattr(self._local, "process", None) != os.getpid():  # a forked process must not share sockets
            self._local.process, self._local.kept = os.getpid(), {}
        kept: Dict[Origin, _Kept] = self._local.kept
        return kept

    def _new(self, origin: Origin) -> _Kept:
        """A connection that is not yet open, and whether it leads to a proxy that wants whole addresses."""
        connection, absolute = self._route(origin)
        with self._lock:
            self._all[connection] = os.getpid()
        return connection, absolute

    def _route(self, origin: Origin) -> _Kept:
        scheme, host, port = origin
        proxies = urllib.request.getproxies() if self._proxies is None else self._proxies
        proxy = proxies.get(scheme) or proxies.get("all")
        if proxy and self._proxies is None and urllib.request.proxy_bypass("%s:%d" % (host, port)):
            proxy = None
        if not proxy:
            return self._plain(scheme, host, port), False
        parts = urllib.parse.urlsplit(proxy if "://" in proxy else "http://" + proxy)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError("The proxy must have an http:// address. Other kinds of proxies are not supported.")
        authorization = {}
        if parts.username is not None:
            pair = "%s:%s" % (urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or ""))
            authorization["Proxy-Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        if scheme == "http":
            connection = self._plain("http", parts.hostname, parts.port or 80)
            connection.proxy_headers = authorization  # type: ignore[attr-defined]
            return connection, True
        connection = self._plain("https", parts.hostname, parts.port or 80)
        connection.set_tunnel(host, port, authorization)
        return connection, False

    def _plain(self, scheme: str, host: str, port: int) -> http.client.HTTPConnection:
        if scheme == "http":
            return _HTTP(host, port)
        with self._lock:
            if self._context is None:
                self._context = ssl.create_default_context()
        return _HTTPS(host, port, context=self._context)


class Stream:
    """An answer that is read line by line."""

    def __init__(self, answer: _Answer, timeout: float) -> None:
        self._answer, self._timeout = answer, timeout
        self.status = answer.status
        self.headers = _lower(answer)

    def lines(self) -> Iterator[bytes]:
        """The lines of the answer. A break in the middle is an APIConnectionError."""
        while True:
            _clock.deadline = time.monotonic() + self._timeout
            line = self._answer.readline()
            if not line:
                if self._answer.length:
                    raise http.client.IncompleteRead(b"", self._answer.length)
                return
            yield line

    def rest(self) -> Response:
        """The whole answer, for one that is an error."""
        return Response(self.status, self.headers, self._answer.read(1 << 20))


def _ask(connection: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str], body: "Iterable[bytes]") -> _Answer:
    connection.putrequest(method, target)
    for name, value in {**headers, **getattr(connection, "proxy_headers", {})}.items():
        connection.putheader(name, value)
    try:
        connection.endheaders()
        for part in _own(body):
            connection.sock.settimeout(_left())
            connection.send(part)
    except (BrokenPipeError, ConnectionResetError):
        if connection.sock is None:
            raise
        # A server that refuses a body may answer and close before it has read all: its answer is read.
    return cast(_Answer, connection.getresponse())


class _OfCaller(Exception):
    """An error of what makes the body, such as a file that cannot be read. It is no error of the network."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        super().__init__(error)


def _own(body: "Iterable[bytes]") -> Iterator[bytes]:
    """The parts of a body, whose errors become _OfCaller."""
    try:
        yield from body
    except Exception as error:
        raise _OfCaller(error) from error


def _readable(sock: socket.socket) -> bool:
    """Whether an idle connection has something to read, which can only be its end."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(sock, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([sock], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _named(error: Exception, method: str, origin: Origin, timeout: float) -> APIConnectionError:
    """The error of an attempt. It has no path or query: a signed address is a secret."""
    at = "%s to %s://%s:%d" % (method, *origin)
    if isinstance(error, (socket.timeout, TimeoutError)):
        return APITimeoutError("%s got no complete response within %g seconds." % (at, timeout))
    if isinstance(error, http.client.IncompleteRead):
        return APIConnectionError("%s: the response was cut off." % at)
    if isinstance(error, ssl.SSLCertVerificationError):
        return APIConnectionError("%s: the server's certificate is not valid: %s." % (at, error.verify_message))
    return APIConnectionError("%s failed: %s." % (at, str(error) or type(error).__name__))


def _lower(answer: http.client.HTTPResponse) -> Dict[str, str]:
    headers: Dict[str, str] = {}
    for name, value in answer.getheaders():
        key = name.lower()
        headers[key] = headers[key] + ", " + value if key in headers else value
    return headers


def chunks(content: bytes, size: int = 1 << 16) -> Iterator[bytes]:
    """Content in parts, so that a deadline can end a slow transfer."""
    for start in range(0, len(content), size):
        yield content[start:start + size]


Progress = Callable[[int, int], None]
