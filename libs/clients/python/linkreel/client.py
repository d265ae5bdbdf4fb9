"""The client."""

from __future__ import annotations

import os
import uuid
from types import TracebackType
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Type, Union, cast

from ._core import Options, cut, object_or_none, shared, unexpected
from ._feed import EventFeed
from ._operations import Operations
from ._transport import Cancel, Progress, Response
from ._upload import File, Upload, opened
from ._values import UNSET, Time, Unset, encode
from .errors import (
    APIConnectionError, APIError, BulkError, LinkreelError, RateLimitError, ServerError, VideoFailedError, WaitTimeout,
)
from . import types

_PATIENCE = 300.0  # seconds for which a wait bears that the service does not answer
_BULK_BYTES = (1 << 20) - 1024  # a body has at most 1 MiB; the rest is for what is around the items


class Client(Operations):
    """A client for one account, or with the operator's address and token for the operator's API.

    ``base_url`` is an address such as https://linkreel.example, and ``key`` an API key, or None for
    calls that need none. ``timeout`` is the seconds that each attempt may take, ``attempts`` how
    often a call is tried, and ``max_wait`` the longest wait, in seconds, that a Retry-After may ask
    for. ``proxies`` replaces the proxies of the environment: {} means none.

    Every operation of the API is a method. list_links returns one page, links() iterates over all
    of them. Threads may share a client. Each thread keeps one connection; close, or the end of a with block,
    closes all of them.
    """

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    # -- anything ----------------------------------------------------------------

    def request(self, method: str, path: str, *, query: Optional[Mapping[str, Any]] = None, body: object = None,
                options: Optional[Options] = None) -> Any:
        """Call any path with the client's retries and errors. Returns the JSON of the response, None if it is empty.

        ``path`` begins with / and is escaped. ``body`` is sent as JSON.
        """
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path or "?" in path:
            raise ValueError("path must begin with / and be escaped. Pass query parameters as query.")
        call = self._call(method.upper(), path, query, body, None, "application/json", options)
        return self._exchange(call, object_or_none, options)

    # -- bulk ----------------------------------------------------------------------

    def create_links(self, links: Iterable[types.BulkItem], /, *, options: Optional[Options] = None) -> "list[types.BulkResult]":
        """Create any number of links: one result for each, in their order.

        A request has up to 100 links and at most 1 MiB. A rejected link does not stop the others: its
        result has ``error`` instead of ``data``. If a request fails, BulkError has the results so far.
        """
        return cast("list[types.BulkResult]", self._bulk("POST", "/api/v1/links/bulk", "urls", list(links), {}, options))

    def update_links(self, ids: Iterable[str], set: types.BulkSet, /, *,
                          options: Optional[Options] = None) -> "list[types.BulkChange]":
        """Make the same change to any number of links: one result for each id, in their order.

        Otherwise it works as create_links does.
        """
        return cast("list[types.BulkChange]", self._bulk("PATCH", "/api/v1/links/bulk", "ids", list(ids), {"set": set}, options))

    def delete_links(self, ids: Iterable[str], /, *, options: Optional[Options] = None) -> "list[types.BulkChange]":
        """Delete any number of links: one result for each id, in their order. Otherwise it works as create_links does."""
        return cast("list[types.BulkChange]", self._bulk("POST", "/api/v1/links/bulk-delete", "ids", list(ids), {}, options))

    def _bulk(self, method: str, path: str, name: str, items: "list[Any]", more: Mapping[str, Any], options: Optional[Options]) -> Any:
        given: Options = options or {}
        key = given.get("idempotency_key") or str(uuid.uuid4())
        results: "list[Any]" = []
        left = shared(self, given)
        parts = []  # all are made before the first is sent: an item that cannot be sent is found in time
        for start, end in cut(items, self.BULK_ITEMS, _BULK_BYTES - len(encode(more))):
            own = cast(Options, {**given, "idempotency_key": "%s-%d" % (key, start)})
            parts.append((start, end, self._call(method, path, None, {name: items[start:end], **more}, None, "application/json", own)))
        for start, end, call in parts:
            try:
                results += self._exchange(call, _results, left())
            except Exception as error:
                raise BulkError(error, results, items[start:end], items[end:], key) from error
        return results

    # -- videos ----------------------------------------------------------------------

    def upload_video(self, file: File, *, title: "Union[str, None, Unset]" = UNSET, description: "Union[str, None, Unset]" = UNSET,
                     tags: "Union[Sequence[str], None, Unset]" = UNSET, external_id: "Union[str, None, Unset]" = UNSET,
                     privacy: "Union[types.Privacy, None, Unset]" = UNSET, password: "Union[str, None, Unset]" = UNSET,
                     expires_at: "Union[Time, None, Unset]" = UNSET, content_type: Optional[str] = None,
                     progress: Optional[Progress] = None, wait: bool = True, timeout: float = 3600,
                     options: Optional[Options] = None) -> types.Video:
        """Create a video, send its file, and wait until it can be played, for at most ``timeout`` seconds.

        ``file`` is a path or an open binary file; ``title`` is the file's name if you give none.
        ``progress`` is called with the bytes that were sent and the size. Raises UploadError,
        VideoFailedError and WaitTimeout. An error's ``video`` is the record: to go on, pass it to upload.
        """
        with opened(file, content_type) as (reader, kind):
            if title is UNSET and isinstance(file, (str, os.PathLike)):
                title = os.path.splitext(os.path.basename(os.fspath(file)))[0]
            fields = {"title": title, "description": description, "tags": tags, "externalId": external_id, "privacy": privacy,
                      "password": password, "expiresAt": expires_at}
            left = shared(self, options)
            made = self._json("POST", "/api/v1/videos", body=fields, options=left())
            try:
                self.upload(made, reader, content_type=kind, progress=progress, options=left())
                if wait:
                    return self.wait_until_ready(made["videoId"], timeout=timeout, options=left())
                return self.get_video(made["videoId"], options=left())
            except LinkreelError as error:
                error.video = error.video or made
                raise

    def upload(self, video: Mapping[str, Any], file: File, *, content_type: Optional[str] = None, part: int = 8 << 20,
               progress: Optional[Progress] = None, options: Optional[Options] = None) -> None:
        """Send a file to the upload address of a new video, or of one that failed.

        Broken connections are resumed. If the program stops, read the video again and call upload:
        it sends only the rest. ``part`` is the size of a request, a multiple of 256 KiB. An attempt
        may take the call's timeout plus one second for every 64 KiB.
        """
        with opened(file, content_type) as (reader, kind):
            Upload(self, reader, kind, part, progress, options).send(video)

    def wait_until_ready(self, id: str, /, *, timeout: float = 3600, seen: Optional[Callable[[types.Video], None]] = None,
                         options: Optional[Options] = None) -> types.Video:
        """Wait until a video can be played, for at most ``timeout`` seconds. ``seen`` is called with each response.

        With the scope events:read, the client waits for the video's events; otherwise it polls the video.
        It bears that the service does not answer for up to five minutes. Raises VideoFailedError and WaitTimeout.
        """
        given: Options = options or {}
        end = self._clock() + min(timeout, given.get("total_timeout", timeout))
        after = self._newest_event(id, given, end)
        video: Optional[types.Video] = None
        failing: Optional[float] = None  # since when the service does not answer
        pause = 1.0
        while True:
            try:
                # The last look needs a moment too.
                video = self.get_video(id, options=cast(Options, {**given, "total_timeout": max(end - self._clock(), 1.0)}))
            except (APIConnectionError, ServerError, RateLimitError) as error:
                now = self._clock()
                failing = now if failing is None else failing
                left = min(end, failing + _PATIENCE) - now
                if left <= 0:
                    if video is not None and now >= end:
                        raise WaitTimeout(video, timeout) from error
                    raise
                asked = min((error.retry_after if isinstance(error, APIError) else None) or 0.0, self._max_wait)
                self._sleep(min(max(pause, asked), left), given.get("cancel") or Cancel())
                pause = min(pause * 1.25, 5.0)
                continue
            failing = None
            if seen is not None:
                seen(video)
            if video["status"] == "ready":
                return video
            if video["status"] == "failed":
                raise VideoFailedError(video)
            left = end - self._clock()
            if left <= 0:
                raise WaitTimeout(video, timeout)
            if after is not None and left >= 1:
                after = self._next_event(id, after, min(5, int(left)), given, end)
                if after is not None:
                    continue
            self._sleep(min(pause, left), given.get("cancel") or Cancel())
            pause = min(pause * 1.25, 5.0)

    def _newest_event(self, id: str, options: Options, end: float) -> Optional[str]:
        """The newest event of a record; None if it has none, or the key may not read events."""
        try:
            page = self._json("GET", "/api/v1/events", query={"object": id, "limit": 1},
                              options=_plain(options, end - self._clock()))
        except (APIError, APIConnectionError):
            return None
        return page["data"][0]["id"] if page["data"] else None

    def _next_event(self, id: str, after: str, seconds: int, options: Options, end: float) -> Optional[str]:
        """Wait for an event of a record: the place to wait from next, None if that does not work."""
        try:
            # The wait is short, so that the progress is seen too, which is no event.
            page = self._json("GET", "/api/v1/events", query={"object": id, "after": after, "wait": seconds},
                              options=_plain(options, end - self._clock()))
        except (APIError, APIConnectionError):
            return None
        return cast("Optional[str]", page["nextCursor"]) or after

    # -- events ------------------------------------------------------------------------

    def follow_events(self, *, after: Optional[str] = None, type: "Union[Sequence[types.EventType], None]" = None,
                      object: Optional[str] = None, patience: float = 300.0, options: Optional[Options] = None) -> EventFeed:
        """Follow the feed of events, which never ends: ``for event in client.follow_events(after=cursor)``.

        ``after`` is the cursor of an earlier feed or an event's id; "" is the beginning of the feed.
        Without it, you get the events from now on. ``type`` and ``object`` filter them. While the
        service does not answer, the feed retries for up to ``patience`` seconds. CursorLostError
        means that the service no longer has the place.
        """
        return EventFeed(self, {"type": type, "object": object}, after, patience, options)


def _plain(options: Options, seconds: float) -> Options:
    """The options of a call for the calls beside it, which have answers of their own and that many seconds."""
    kept = {name: value for name, value in options.items() if name in ("timeout", "attempts", "headers", "cancel")}
    return cast(Options, {**kept, "total_timeout": max(seconds, 0.001)})


def _results(response: Response) -> "list[Any]":
    """The results of a bulk request."""
    value = object_or_none(response)
    if not isinstance(value, dict) or not isinstance(value.get("results"), list):
        raise unexpected(response)
    return cast("list[Any]", value["results"])
