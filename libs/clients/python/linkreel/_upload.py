"""Sending a file to object storage, in parts that survive broken connections."""

from __future__ import annotations

import mimetypes
import os
from contextlib import contextmanager
from typing import Any, BinaryIO, Iterator, Mapping, Optional, Union

from ._core import Core, Options, again, retry_after
from ._transport import Cancel, Progress, Response
from .errors import APIConnectionError, APIError, UploadError, UploadGoneError, api_error

File = Union[str, "os.PathLike[str]", BinaryIO]

_SLOWEST = 1 << 16  # bytes a second; an attempt has this much time more than the timeout
_PIECE = 1 << 16


class Upload:
    """One file on its way."""

    def __init__(self, core: Core, file: BinaryIO, content_type: Optional[str], part: int, progress: Optional[Progress],
                 options: Optional[Options]) -> None:
        if part < 1 or part % (256 << 10):
            raise ValueError("part must be a multiple of 256 KiB, because storage accepts no other size.")
        given: Options = options or {}
        self._core, self._file, self._part = core, file, part
        # A body without a type would be called a form, which the address may not take.
        self._type = content_type or "application/octet-stream"
        self._cancel = given.get("cancel") or Cancel()
        self._timeout = given.get("timeout", core._timeout)
        self._end = core._clock() + given["total_timeout"] if "total_timeout" in given else None
        self._attempts = given.get("attempts", core._attempts)
        self._size = file.seek(0, os.SEEK_END)
        self._progress = progress or (lambda sent, size: None)

    def send(self, video: Mapping[str, Any]) -> None:
        """Send the file to the address of a video's record."""
        session, plain = video.get("resumableUploadUrl"), video.get("uploadUrl")
        if session:
            self._in_parts(session)
        elif plain:
            self._whole(plain)
        else:
            raise UploadGoneError("The video has no upload address. It has one only while its status is uploading or failed, and only keys "
                                  "with the scope videos:write see it.")
        self._progress(self._size, self._size)

    def _whole(self, url: str) -> None:
        failures = 0
        while True:
            try:
                self._put(url, 0, self._size, None)
                return
            except (APIConnectionError, APIError) as error:
                failures += 1
                self._pause(error, failures)

    def _in_parts(self, url: str) -> None:
        # Storage says how far it got, at first too: a program that starts again sends only the rest.
        at: Optional[int] = None
        best, failures = 0, 0
        while True:
            try:
                if at is None or at == self._size:
                    answer = self._put(url, 0, 0, "bytes */%d" % self._size)
                else:
                    n = min(self._part, self._size - at)
                    answer = self._put(url, at, n, "bytes %d-%d/%d" % (at, at + n - 1, self._size))
            except (APIConnectionError, APIError) as error:
                failures += 1
                self._pause(error, failures)
                at = None
                continue
            if answer.status < 300:
                return
            have = _arrived(answer.headers.get("range", ""))
            if have > best:
                best, failures = have, 0  # a long upload over a bad connection may break many times
            elif at is not None:
                failures += 1
            if failures >= self._attempts:
                raise UploadError("Storage accepts no more bytes after %d of %d." % (best, self._size), answer.status)
            at = have
            self._progress(at, self._size)

    def _put(self, url: str, start: int, length: int, content_range: Optional[str]) -> Response:
        headers = {"Content-Length": str(length), "Content-Type": self._type, "User-Agent": self._core._headers["User-Agent"]}
        if content_range:
            headers["Content-Range"] = content_range
        timeout = self._timeout + length / _SLOWEST
        if self._end is not None:
            timeout = max(min(timeout, self._end - self._core._clock()), 0.001)
        answer = self._core._transport.send("PUT", url, headers, self._pieces(start, length), timeout, self._cancel)
        if answer.status < 300 or answer.status == 308 and content_range:
            return answer
        if answer.status in (400, 403, 404, 410, 499):
            raise UploadGoneError("Storage answered %d: the upload address no longer works. Read the video again to get a new one."
                                  % answer.status, answer.status)
        error = api_error(answer.status, {}, retry_after=retry_after(answer.headers.get("retry-after", "")))
        if not again(error):
            raise UploadError("Storage answered %d and did not accept the file." % answer.status, answer.status)
        raise error

    def _pieces(self, start: int, length: int) -> Iterator[bytes]:
        self._file.seek(start)
        sent = 0
        while sent < length:
            piece = self._file.read(min(_PIECE, length - sent))
            if not piece:
                raise UploadError("The file became shorter during the upload.")
            yield piece
            sent += len(piece)
            if sent < length:  # the end is told when storage has confirmed it
                self._progress(start + sent, self._size)

    def _pause(self, error: "Union[APIConnectionError, APIError]", failures: int) -> None:
        seconds = min(0.2 * 2.0 ** (failures - 1), 10.0)
        asked = error.retry_after if isinstance(error, APIError) else None
        late = self._end is not None and self._core._clock() + max(seconds, asked or 0.0) >= self._end
        if late or failures >= self._attempts or (asked or 0.0) > self._core._max_wait:
            status = error.status if isinstance(error, APIError) else 0
            raise UploadError("The upload failed: %s Call upload again to resume it." % error, status) from error
        self._core._sleep(max(seconds, asked or 0.0), self._cancel)


def _arrived(value: str) -> int:
    """The bytes that bytes=0-1234 stands for: 1235."""
    last = value.rsplit("-", 1)[-1]
    return int(last) + 1 if "-" in value and last.isascii() and last.isdigit() and len(last) <= 15 else 0


@contextmanager
def opened(file: File, content_type: Optional[str]) -> "Iterator[tuple[BinaryIO, Optional[str]]]":
    """A file to read, and its media type if its name or the caller says so."""
    if isinstance(file, (str, os.PathLike)):
        with open(file, "rb") as reader:
            yield reader, content_type or mimetypes.guess_type(os.fspath(file))[0]
        return
    if not file.seekable():
        raise ValueError("The file is not seekable, so a broken upload could not resume. Save it to disk first.")
    yield file, content_type
