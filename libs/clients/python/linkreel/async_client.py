"""The client for asyncio."""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Any, AsyncIterator, Callable, Iterable, Mapping, Optional, Sequence, Type, Union, cast

from ._async_operations import AsyncOperations
from ._core import AsyncOptions
from ._feed import EventFeed
from ._transport import Progress
from ._upload import File
from ._values import UNSET, Time, Unset
from .client import Client
from . import types


class AsyncClient(AsyncOperations):
    """The Client for asyncio: the same methods and arguments, as coroutines and asynchronous iterators.

    Calls run in up to ``threads`` threads of the client and never block the loop; further calls
    wait for a free thread. A feed takes one thread while it waits. Cancelling a task closes the
    connection of its call, which may have taken effect.
    """

    def __init__(self, base_url: str, key: Optional[str] = None, *, timeout: float = 30.0, attempts: int = 5, max_wait: float = 60.0,
                 headers: Optional[Mapping[str, str]] = None, user_agent: str = "", proxies: Optional[Mapping[str, str]] = None,
                 ssl_context: Optional[ssl.SSLContext] = None, threads: int = 16) -> None:
        self._client = Client(base_url, key, timeout=timeout, attempts=attempts, max_wait=max_wait, headers=headers,
                              user_agent=user_agent, proxies=proxies, ssl_context=ssl_context)
        super().__init__(self._client, threads)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def request(self, method: str, path: str, *, query: Optional[Mapping[str, Any]] = None, body: object = None,
                      options: Optional[AsyncOptions] = None) -> Any:
        """As Client.request."""
        return await self._run(lambda given: self._client.request(method, path, query=query, body=body, options=given), options)

    async def create_links(self, links: Iterable[types.BulkItem], /, *,
                                options: Optional[AsyncOptions] = None) -> "list[types.BulkResult]":
        """As Client.create_links."""
        items = list(links)
        return await self._run(lambda given: self._client.create_links(items, options=given), options)

    async def update_links(self, ids: Iterable[str], set: types.BulkSet, /, *,
                                options: Optional[AsyncOptions] = None) -> "list[types.BulkChange]":
        """As Client.update_links."""
        items = list(ids)
        return await self._run(lambda given: self._client.update_links(items, set, options=given), options)

    async def delete_links(self, ids: Iterable[str], /, *, options: Optional[AsyncOptions] = None) -> "list[types.BulkChange]":
        """As Client.delete_links."""
        items = list(ids)
        return await self._run(lambda given: self._client.delete_links(items, options=given), options)

    async def upload_video(self, file: File, *, title: "Union[str, None, Unset]" = UNSET, description: "Union[str, None, Unset]" = UNSET,
                           tags: "Union[Sequence[str], None, Unset]" = UNSET, external_id: "Union[str, None, Unset]" = UNSET,
                           privacy: "Union[types.Privacy, None, Unset]" = UNSET, password: "Union[str, None, Unset]" = UNSET,
                           expires_at: "Union[Time, None, Unset]" = UNSET, content_type: Optional[str] = None,
                           progress: Optional[Progress] = None, wait: bool = True, timeout: float = 3600,
                           options: Optional[AsyncOptions] = None) -> types.Video:
        """As Client.upload_video. ``progress`` is called in the loop's thread."""
        told = _in_loop(progress)
        return await self._run(lambda given: self._client.upload_video(
            file, title=title, description=description, tags=tags, external_id=external_id, privacy=privacy, password=password,
            expires_at=expires_at, content_type=content_type, progress=told, wait=wait, timeout=timeout, options=given), options)

    async def upload(self, video: Mapping[str, Any], file: File, *, content_type: Optional[str] = None, part: int = 8 << 20,
                     progress: Optional[Progress] = None, options: Optional[AsyncOptions] = None) -> None:
        """As Client.upload. ``progress`` is called in the loop's thread."""
        told = _in_loop(progress)
        await self._run(lambda given: self._client.upload(
            video, file, content_type=content_type, part=part, progress=told, options=given), options)

    async def wait_until_ready(self, id: str, /, *, timeout: float = 3600, seen: Optional[Callable[[types.Video], None]] = None,
                               options: Optional[AsyncOptions] = None) -> types.Video:
        """As Client.wait_until_ready. ``seen`` is called in the loop's thread."""
        told = _in_loop(seen)
        return await self._run(lambda given: self._client.wait_until_ready(id, timeout=timeout, seen=told, options=given), options)

    async def follow_events(self, *, after: Optional[str] = None, type: "Union[Sequence[types.EventType], None]" = None,
                            object: Optional[str] = None, patience: float = 300.0,
                            options: Optional[AsyncOptions] = None) -> "AsyncEventFeed":
        """As Client.follow_events: ``async for event in await client.follow_events(after=cursor)``."""
        return AsyncEventFeed(self, await self._run(
            lambda given: self._client.follow_events(after=after, type=type, object=object, patience=patience, options=given), options))


class AsyncEventFeed(AsyncIterator[types.Event]):
    """The events of an account, oldest first, without an end.

    ``cursor`` is as in EventFeed. You may cancel a wait for the next event, for example with
    asyncio.wait_for, and read on later: no event is lost.
    """

    def __init__(self, client: AsyncClient, feed: EventFeed) -> None:
        self._client, self._feed = client, feed
        self.cursor = feed.cursor

    def __aiter__(self) -> "AsyncEventFeed":
        return self

    async def __anext__(self) -> types.Event:
        feed = self._feed
        try:
            event: types.Event = await self._client._step(feed, feed._cancel)
        except asyncio.CancelledError:
            # The thread may still read from the old feed, so the next call has one of its own.
            self._feed = feed.restarted(self.cursor)
            raise
        self.cursor = feed.cursor
        return event


def _in_loop(callback: Any) -> Any:
    """A callback that a thread may call and that runs in the loop's thread."""
    if callback is None:
        return None
    loop = asyncio.get_running_loop()
    return lambda *values: cast(None, loop.call_soon_threadsafe(callback, *values))
