"""The base of AsyncClient: the calls of Client, in threads of its own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncIterator, Callable, Iterator, Mapping, Optional, TypeVar, cast

from ._core import AsyncOptions, Core, Options
from ._transport import Cancel

T = TypeVar("T")
_END: Any = object()


class AsyncCore:
    """The base of AsyncClient. Its methods are for the generated ones."""

    def __init__(self, core: Core, threads: int) -> None:
        self._core = core
        self._pool = ThreadPoolExecutor(threads, "linkreel")

    async def close(self) -> None:
        """Close all connections. Calls that are still running, and later ones, end with ClosedError."""
        self._core.close()
        self._pool.shutdown(wait=False)

    async def _run(self, call: Callable[[Options], T], options: Optional[AsyncOptions]) -> T:
        """Make a call in a thread. When the task is cancelled, the call's connection breaks and its thread is free."""
        loop = asyncio.get_running_loop()
        given = cast(Options, dict(options or {}))
        if "cancel" in given:
            raise TypeError("AsyncClient has no option cancel. Cancel the task.")
        told = given.get("on_response")
        if told is not None:  # in the loop's thread, and before the call returns
            tell = told
            given["on_response"] = lambda response: cast(None, loop.call_soon_threadsafe(tell, response))
        cancel = given["cancel"] = Cancel()
        try:
            return await self._thread(lambda: call(given))
        except asyncio.CancelledError:
            cancel.cancel()
            raise

    def _thread(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Work that begins in a thread of the pool."""
        self._core._transport.check()  # the pool's own error is no LinkreelError
        return asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _walk(self, iterator: Callable[[Options], Iterator[T]], options: Optional[AsyncOptions]) -> AsyncIterator[T]:
        """The items of an iterator, each made in a thread."""
        given: Any = None

        def start(options: Options) -> Iterator[T]:
            nonlocal given
            given = options
            return iterator(options)
        items = await self._run(start, options)
        try:
            while True:
                item = await self._step(items, given["cancel"])
                if item is _END:
                    return
                yield item
        finally:
            given["cancel"].cancel()  # of a walk that is left early: its thread ends

    async def _step(self, items: Iterator[T], cancel: Cancel) -> T:
        try:
            return await self._thread(lambda: next(items, _END))
        except asyncio.CancelledError:
            cancel.cancel()
            raise

    async def _json(self, method: str, path: str, parameters: Optional[Mapping[str, str]] = None, *,
                    query: Optional[Mapping[str, Any]] = None, body: object = None, content: Optional[bytes] = None,
                    content_type: str = "application/json", link: bool = False, once: bool = False,
                    options: Optional[AsyncOptions] = None) -> Any:
        return await self._run(lambda given: self._core._json(
            method, path, parameters, query=query, body=body, content=content, content_type=content_type, link=link, once=once,
            options=given), options)

    async def _none(self, method: str, path: str, parameters: Optional[Mapping[str, str]] = None, *,
                    query: Optional[Mapping[str, Any]] = None, body: object = None, once: bool = False,
                    options: Optional[AsyncOptions] = None) -> None:
        await self._run(lambda given: self._core._none(
            method, path, parameters, query=query, body=body, once=once, options=given), options)

    async def _bytes(self, method: str, path: str, parameters: Optional[Mapping[str, str]] = None, *, accept: "tuple[str, ...]",
                     query: Optional[Mapping[str, Any]] = None, options: Optional[AsyncOptions] = None) -> bytes:
        return await self._run(lambda given: self._core._bytes(
            method, path, parameters, accept=accept, query=query, options=given), options)

    def _lines(self, method: str, path: str, parameters: Optional[Mapping[str, str]] = None, *, accept: "tuple[str, ...]",
               query: Optional[Mapping[str, Any]] = None, options: Optional[AsyncOptions] = None) -> AsyncIterator[Any]:
        return self._walk(lambda given: self._core._lines(method, path, parameters, accept=accept, query=query, options=given), options)

    def _pages(self, path: str, parameters: Optional[Mapping[str, str]] = None, *, query: Optional[Mapping[str, Any]] = None,
               link: bool = False, options: Optional[AsyncOptions] = None) -> AsyncIterator[Any]:
        return self._walk(lambda given: self._core._pages(path, parameters, query=query, link=link, options=given), options)
