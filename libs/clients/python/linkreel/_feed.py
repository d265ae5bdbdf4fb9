"""The feed of events, followed over broken connections and restarts."""

from __future__ import annotations

import random
from collections import deque
from typing import Any, Deque, Dict, Iterator, Optional, cast

from ._core import Core, Options
from ._transport import Cancel
from .errors import APIConnectionError, APIError, CursorLostError, LinkreelError, RateLimitError, ServerError
from .types import Event

_HELD = 25  # seconds that the service holds a request


class EventFeed(Iterator[Event]):
    """The events of an account, oldest first. It never ends. Client.follow_events returns it.

    ``cursor`` is the place after the last event that you got. Store it once you have handled that
    event. To continue from there, even in another program, pass it to follow_events as ``after``.
    """

    def __init__(self, core: Core, query: Dict[str, Any], after: Optional[str], patience: float, options: Optional[Options]) -> None:
        given: Options = options or {}
        self._core, self._query, self._patience, self._given = core, query, patience, given
        self._options = cast(Options, {**given, "timeout": given.get("timeout", core._timeout) + _HELD})
        self._cancel = given.get("cancel") or Cancel()
        self._page: Deque[Event] = deque()
        self._end = ""  # the cursor of the page
        self._failing: Optional[float] = None  # since when nothing answers
        self.cursor = self._newest() if after is None else after

    def restarted(self, after: str) -> "EventFeed":
        """The same feed from another place, for a reader whose request was cancelled."""
        return EventFeed(self._core, self._query, after, self._patience, cast(Options, {**self._given, "cancel": Cancel()}))

    def __iter__(self) -> "EventFeed":
        return self

    def __next__(self) -> Event:
        while not self._page:
            self._read()
        event = self._page.popleft()
        self.cursor = event["id"] if self._page else self._end
        return event

    def _newest(self) -> str:
        """The place of the newest event; "" is the beginning of the feed."""
        page = self._core._json("GET", "/api/v1/events", query={"limit": 1}, options=self._options)
        return cast(str, page["data"][0]["id"]) if page["data"] else ""

    def _read(self) -> None:
        query = {**self._query, "after": self.cursor, "wait": _HELD, "limit": 100}
        try:
            page = self._core._json("GET", "/api/v1/events", query=query, options=self._options)
        except (APIConnectionError, ServerError, RateLimitError) as error:
            self._bear(error)
            return
        except APIError as error:
            if error.status == 410 or error.code == "INVALID_CURSOR":
                raise CursorLostError(error.status, error.error, request_id=error.request_id) from error
            raise
        self._failing = None
        self._page.extend(page["data"])
        self._end = page["nextCursor"] or self.cursor
        if not self._page:
            self.cursor = self._end
            # A server that is stopping does not hold the request. Its callers must not all come back at once.
            self._core._sleep(random.uniform(0.0, 1.0), self._cancel)

    def _bear(self, error: LinkreelError) -> None:
        """Wait after a failure, or raise it once nothing has answered for too long."""
        now = self._core._clock()
        if self._failing is None:
            self._failing = now
        left = self._failing + self._patience - now
        if left <= 0:
            raise error
        asked = error.retry_after if isinstance(error, APIError) else None
        self._core._sleep(min(max(asked or 0.0, random.uniform(1.0, 5.0)), self._core._max_wait, left), self._cancel)
