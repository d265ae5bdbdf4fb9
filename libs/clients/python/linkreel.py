"""Linkreel: short links and shareable videos. One module, standard library only.

    from linkreel import Linkreel

    api = Linkreel("https://linkreel.example", key="lr_live_...")
    print(api.create_link("https://example.com/spring", slug="spring")["shortUrl"])

    video = api.upload_video("demo.mp4", title="Demo")       # waits until it plays
    print(video["shareUrl"])

    for link in api.links():                                  # all pages
        print(link["slug"], link["clicks"])

Every call retries what is worth retrying: lost connections, 429 and 5xx, as long
as the service asks in Retry-After. Each POST carries an Idempotency-Key, so that
a retry never acts twice. Answers are the API's own JSON objects as dicts; /docs
of a deployment describes them. Needs Python 3.9 or newer.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import mimetypes
import os
import random
import re
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Union

__all__ = ["Linkreel", "verify_webhook", "APIError", "VideoFailed", "UploadGone", "CLEAR"]
__version__ = "1.0.0"

#: Give this to update_link or update_video to empty a field.
CLEAR = None
_KEEP: Any = object()

JSON = Dict[str, Any]


def verify_webhook(secret: str, headers: Any, body: Union[bytes, str], tolerance: float = 300, now: Optional[float] = None) -> bool:
    """Whether a message came from the deployment that gave you ``secret``, lately.

    ``headers`` is any mapping; ``body`` is the request's body to the last byte.
    """
    fields = {str(name).lower(): str(value) for name, value in dict(headers).items()}
    message_id, stamp = fields.get("webhook-id", ""), fields.get("webhook-timestamp", "")
    raw = body.encode() if isinstance(body, str) else body
    try:
        key = base64.b64decode(secret[6:] if secret.startswith("whsec_") else secret, validate=True)
        age = (time.time() if now is None else now) - int(stamp)
    except (binascii.Error, ValueError):
        return False
    if not message_id or abs(age) > tolerance:
        return False
    signed = ("%s.%s." % (message_id, stamp)).encode() + raw
    want = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(want.encode(), part.encode()) for part in fields.get("webhook-signature", "").split())


class APIError(Exception):
    """The API refused a call. Decide by ``code``; ``details`` names wrong fields."""

    def __init__(self, status: int, error: JSON, retry_after: Optional[float] = None):
        self.status = status
        self.code: str = error.get("code") or "HTTP_%d" % status
        self.message: str = error.get("message") or "The service answered with status %d." % status
        self.request_id: str = error.get("requestId") or ""
        self.details: List[JSON] = error.get("details") or []
        self.error = error
        self.retry_after = retry_after
        fields = "".join("; %s: %s" % (d.get("field"), d.get("message")) for d in self.details)
        super().__init__("%s (%s)%s" % (self.message, self.code, fields))


class VideoFailed(Exception):
    """A video could not be prepared. ``code`` says why, ``video`` is the record."""

    def __init__(self, video: JSON):
        error = video.get("error") or {}
        self.video = video
        self.code: str = error.get("code", "INTERNAL")
        super().__init__("%s (%s)" % (error.get("message", "The video failed."), self.code))


class UploadGone(Exception):
    """Storage does not know the upload address any more: get the video again."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None  # 308 is an answer of an upload session, and a key is for one host


class Linkreel:
    """A client for one account. Safe to share between threads."""

    def __init__(self, base_url: str, key: str, *, attempts: int = 5, timeout: float = 30, max_wait: float = 60,
                 sleep: Callable[[float], None] = time.sleep):
        if urllib.parse.urlsplit(base_url).scheme not in ("http", "https"):
            raise ValueError("base_url %r is no http or https address" % base_url)
        self._base = base_url.rstrip("/")
        self._key = key
        self._attempts = attempts
        self._timeout = timeout
        self._max_wait = max_wait
        self._sleep = sleep
        self._opener = urllib.request.build_opener(_NoRedirect)

    # -- links ---------------------------------------------------------------

    def create_link(self, url: str, *, slug: Optional[str] = None, title: Optional[str] = None, domain_id: Optional[str] = None,
                    expires_at: Union[str, float, None] = None, og_title: Optional[str] = None, og_description: Optional[str] = None,
                    og_image: Optional[str] = None, redirect_type: Optional[int] = None, forward_query: Optional[bool] = None,
                    forward_path: Optional[bool] = None, starts_at: Union[str, float, None] = None, expired_url: Optional[str] = None,
                    password: Optional[str] = None, max_clicks: Optional[int] = None, rules: Optional[List[JSON]] = None,
                    idempotency_key: Optional[str] = None) -> JSON:
        """Make a short link. expires_at and starts_at are milliseconds or any date that JavaScript reads."""
        body = {"url": url, "slug": slug, "title": title, "domainId": domain_id, "expiresAt": expires_at,
                "ogTitle": og_title, "ogDescription": og_description, "ogImage": og_image,
                "redirectType": redirect_type, "forwardQuery": forward_query, "forwardPath": forward_path, "startsAt": starts_at,
                "expiredUrl": expired_url, "password": password, "maxClicks": max_clicks, "rules": rules}
        return self._call("POST", "/api/v1/links", _given(body), key=idempotency_key)

    def link(self, link_id: str) -> JSON:
        return self._call("GET", "/api/v1/links/" + _segment(link_id))

    def update_link(self, link_id: str, *, url: Any = _KEEP, title: Any = _KEEP, expires_at: Any = _KEEP, og_title: Any = _KEEP,
                    og_description: Any = _KEEP, og_image: Any = _KEEP, redirect_type: Any = _KEEP, forward_query: Any = _KEEP,
                    forward_path: Any = _KEEP, starts_at: Any = _KEEP, expired_url: Any = _KEEP, password: Any = _KEEP,
                    max_clicks: Any = _KEEP, rules: Any = _KEEP) -> JSON:
        """Change a link. What is left out stays, CLEAR (None) empties."""
        body = {"url": url, "title": title, "expiresAt": expires_at, "ogTitle": og_title, "ogDescription": og_description, "ogImage": og_image,
                "redirectType": redirect_type, "forwardQuery": forward_query, "forwardPath": forward_path, "startsAt": starts_at,
                "expiredUrl": expired_url, "password": password, "maxClicks": max_clicks, "rules": rules}
        return self._call("PATCH", "/api/v1/links/" + _segment(link_id), {k: v for k, v in body.items() if v is not _KEEP})

    def explain_link(self, link_id: str, *, country: Optional[str] = None, device: Optional[str] = None, system: Optional[str] = None,
                     language: Optional[str] = None, query: Optional[str] = None, path: Optional[str] = None,
                     percent: Optional[int] = None, at: Union[str, float, None] = None) -> JSON:
        """What a link would decide about a visit: status, location, rule and why. Nothing is counted."""
        return self._call("GET", "/api/v1/links/%s/explain" % _segment(link_id), query={
            "country": country, "device": device, "system": system, "language": language, "query": query, "path": path,
            "percent": percent, "at": at})

    def slug_available(self, slug: str, *, domain_id: Optional[str] = None) -> JSON:
        """Whether a create could take a slug now: available and, if not, the reason. Nothing is reserved."""
        return self._call("GET", "/api/v1/links/available", query={"slug": slug, "domainId": domain_id})

    def delete_link(self, link_id: str) -> None:
        self._call("DELETE", "/api/v1/links/" + _segment(link_id))

    def links(self, *, q: Optional[str] = None, tag: Union[str, List[str], None] = None, domain_id: Optional[str] = None,
              slug: Optional[str] = None, external_id: Optional[str] = None, archived: Optional[str] = None) -> Iterator[JSON]:
        """All links that fit the filters, newest first; pages are read as you go."""
        filters = {"q": q, "tag": tag, "domainId": domain_id, "slug": slug, "externalId": external_id, "archived": archived}
        cursor = None
        while True:
            page = self._call("GET", "/api/v1/links", query={**filters, "limit": 100, "cursor": cursor})
            yield from page["data"]
            cursor = page["nextCursor"]
            if not page["hasMore"] or cursor is None:
                return

    def bulk_create(self, items: List[JSON], *, idempotency_key: Optional[str] = None) -> List[JSON]:
        """Make any number of links, 100 to a request; one result per item, in order."""
        key = idempotency_key or str(uuid.uuid4())
        results: List[JSON] = []
        for i in range(0, len(items), 100):
            results += self._call("POST", "/api/v1/links/bulk", {"urls": items[i:i + 100]}, key="%s-%d" % (key, i))["results"]
        return results

    def bulk_change(self, ids: List[str], change: JSON) -> List[JSON]:
        """Change up to 100 links: tags, addTags, removeTags, archived, expiresAt. One result per id."""
        return self._call("PATCH", "/api/v1/links/bulk", {"ids": ids, "set": change})["results"]

    def bulk_delete(self, ids: List[str]) -> List[JSON]:
        """Delete up to 100 links; one result per id."""
        return self._call("POST", "/api/v1/links/bulk-delete", {"ids": ids})["results"]

    def tags(self, *, q: Optional[str] = None) -> Iterator[str]:
        """The account's tags in alphabetical order."""
        cursor = None
        while True:
            page = self._call("GET", "/api/v1/tags", query={"limit": 100, "q": q, "cursor": cursor})
            yield from (tag["name"] for tag in page["data"])
            cursor = page.get("nextCursor")
            if cursor is None:
                return

    def link_stats(self, link_id: str, *, start: Optional[str] = None, end: Optional[str] = None) -> JSON:
        """Clicks per UTC day, referrer, country and device; days as 2026-11-20."""
        return self._call("GET", "/api/v1/links/%s/stats" % _segment(link_id), query={"from": start, "to": end})

    # -- domains -------------------------------------------------------------

    def create_domain(self, hostname: str) -> JSON:
        return self._call("POST", "/api/v1/domains", {"hostname": hostname})

    def domains(self) -> List[JSON]:
        return self._call("GET", "/api/v1/domains")["data"]

    def domain(self, domain_id: str) -> JSON:
        return self._call("GET", "/api/v1/domains/" + _segment(domain_id))

    def update_domain(self, domain_id: str, **changes: Any) -> JSON:
        """Changes a domain's pages: homeUrl, notFoundUrl, expiredUrl; None clears one."""
        return self._call("PATCH", "/api/v1/domains/" + _segment(domain_id), changes)

    def domain_stats(self, domain_id: str, *, start: Optional[str] = None, end: Optional[str] = None) -> JSON:
        """Visits per UTC day that no link served: home, notFound, ended; days as 2026-11-20."""
        return self._call("GET", "/api/v1/domains/%s/stats" % _segment(domain_id), query={"from": start, "to": end})

    def verify_domain(self, domain_id: str) -> JSON:
        return self._call("POST", "/api/v1/domains/%s/verify" % _segment(domain_id))

    def delete_domain(self, domain_id: str) -> None:
        self._call("DELETE", "/api/v1/domains/" + _segment(domain_id))

    # -- videos --------------------------------------------------------------

    def create_video(self, *, title: Optional[str] = None, privacy: Optional[str] = None, password: Optional[str] = None,
                     expires_at: Optional[int] = None, idempotency_key: Optional[str] = None) -> JSON:
        """Make a record; send the file to its uploadUrl, or use upload_video."""
        body = {"title": title, "privacy": privacy, "password": password, "expiresAt": expires_at}
        return self._call("POST", "/api/v1/videos", _given(body), key=idempotency_key)

    def video(self, video_id: str) -> JSON:
        return self._call("GET", "/api/v1/videos/" + _segment(video_id))

    def videos(self, limit: int = 20, *, q: Optional[str] = None, tag: Union[str, List[str], None] = None, status: Optional[str] = None,
               privacy: Optional[str] = None, external_id: Optional[str] = None) -> List[JSON]:
        """The newest videos that fit the filters; they combine."""
        return self._call("GET", "/api/v1/videos", query={"limit": limit, "q": q, "tag": tag, "status": status, "privacy": privacy, "externalId": external_id})["data"]

    def video_access(self, video_id: str) -> JSON:
        """Who may see a video. What it answers can be put back by set_video_access."""
        return self._call("GET", "/api/v1/videos/%s/access" % _segment(video_id))

    def set_video_access(self, video_id: str, access: JSON) -> JSON:
        """Replace who may see a video: privacy, password, expiresAt, allowDownload, embedOrigins."""
        return self._call("PUT", "/api/v1/videos/%s/access" % _segment(video_id), access)

    def set_thumbnail(self, video_id: str, second: Optional[float]) -> Any:
        """Take the picture at a second of the video; None goes back to the service's choice."""
        return self._call("PUT", "/api/v1/videos/%s/thumbnail" % _segment(video_id), {"time": second})

    def captions(self, video_id: str) -> List[JSON]:
        return self._call("GET", "/api/v1/videos/%s/captions" % _segment(video_id))["data"]

    def delete_captions(self, video_id: str, language: str) -> None:
        self._call("DELETE", "/api/v1/videos/%s/captions/%s" % (_segment(video_id), _segment(language)))

    def update_video(self, video_id: str, *, title: Any = _KEEP, description: Any = _KEEP, tags: Any = _KEEP, external_id: Any = _KEEP) -> JSON:
        body = {"title": title, "description": description, "tags": tags, "externalId": external_id}
        return self._call("PATCH", "/api/v1/videos/" + _segment(video_id), {k: v for k, v in body.items() if v is not _KEEP})

    def delete_video(self, video_id: str) -> None:
        self._call("DELETE", "/api/v1/videos/" + _segment(video_id))

    def put_captions(self, video_id: str, language: str, vtt: Union[str, bytes]) -> JSON:
        raw = vtt.encode() if isinstance(vtt, str) else vtt
        return self._call("PUT", "/api/v1/videos/%s/captions/%s" % (_segment(video_id), _segment(language)), raw=raw, content_type="text/vtt")

    def upload_video(self, path: Union[str, "os.PathLike[str]"], *, title: Optional[str] = None, privacy: Optional[str] = None,
                     password: Optional[str] = None, expires_at: Optional[int] = None, wait: bool = True, timeout: float = 3600,
                     progress: Optional[Callable[[int, int], None]] = None) -> JSON:
        """Create a video, send the file, and wait until it plays (VideoFailed if it cannot)."""
        name = os.path.basename(os.fspath(path))
        made = self.create_video(title=title if title is not None else os.path.splitext(name)[0], privacy=privacy, password=password, expires_at=expires_at)
        with open(path, "rb") as file:
            self.upload(made, file, content_type=mimetypes.guess_type(name)[0], progress=progress)
        if wait:
            return self.wait_until_ready(made["videoId"], timeout=timeout)
        return self.video(made["videoId"])

    def upload(self, video: JSON, file: BinaryIO, *, content_type: Optional[str] = None, part: int = 8 << 20,
               progress: Optional[Callable[[int, int], None]] = None) -> None:
        """Send a seekable file to a video's address: in parts that survive a broken
        connection where the record has a resumableUploadUrl, else whole."""
        size = file.seek(0, os.SEEK_END)
        tell = progress or (lambda sent, total: None)
        session = video.get("resumableUploadUrl")
        if not session:
            self._again(lambda: self._put(video["uploadUrl"], file, 0, size, content_type, None))
            tell(size, size)
            return
        at: Optional[int] = None  # None: ask how far it got
        best, failures = 0, 0
        while True:
            try:
                if at is None:
                    status, have = self._put(session, file, 0, 0, None, "bytes */%d" % size)
                else:
                    n = min(part, size - at)
                    status, have = self._put(session, file, at, n, content_type, "bytes %d-%d/%d" % (at, at + n - 1, size) if n else "bytes */%d" % size)
            except (OSError, APIError) as error:
                failures += 1
                self._pause(error, failures)
                at = None
                continue
            if status != 308:
                tell(size, size)
                return
            if have > best:
                best, failures = have, 0
            elif at is not None:
                failures += 1
            if failures >= self._attempts:
                raise OSError("storage takes no more bytes")
            at = have
            tell(at, size)

    def wait_until_ready(self, video_id: str, *, timeout: float = 3600, seen: Optional[Callable[[JSON], None]] = None) -> JSON:
        """Ask until the video plays. Raises VideoFailed, or TimeoutError."""
        waited, pause = 0.0, 1.0
        while True:
            video = self.video(video_id)
            if seen:
                seen(video)
            if video["status"] == "ready":
                return video
            if video["status"] == "failed":
                raise VideoFailed(video)
            if waited >= timeout:
                raise TimeoutError("video %s is still %s" % (video_id, video["status"]))
            self._sleep(pause)
            waited, pause = waited + pause, min(pause * 1.25, 5.0)

    # -- account -------------------------------------------------------------

    def account(self) -> JSON:
        return self._call("GET", "/api/v1/account")

    def update_account(self, **changes: Any) -> JSON:
        """Changes name or defaultDomainId. The domain None is the default short host."""
        return self._call("PATCH", "/api/v1/account", changes)

    def keys(self) -> List[JSON]:
        return self._call("GET", "/api/v1/keys")["data"]

    def create_key(self, name: str, *, scopes: Optional[List[str]] = None, expires_at: Union[str, float, None] = None) -> JSON:
        return self._call("POST", "/api/v1/keys", _given({"name": name, "scopes": scopes, "expiresAt": expires_at}))

    def roll_key(self, key_id: str, *, overlap_seconds: int = 0) -> JSON:
        return self._call("POST", "/api/v1/keys/%s/roll" % _segment(key_id), {"overlapSeconds": overlap_seconds})

    def revoke_key(self, key_id: str) -> None:
        self._call("DELETE", "/api/v1/keys/" + _segment(key_id))

    # -- the wire ------------------------------------------------------------

    def _call(self, method: str, path: str, body: Any = None, *, query: Optional[JSON] = None, key: Optional[str] = None,
              raw: Optional[bytes] = None, content_type: str = "application/json") -> Any:
        if query := _given(query or {}):
            path += "?" + urllib.parse.urlencode(query, doseq=True)
        headers = {"Authorization": "Bearer " + self._key, "Accept": "application/json", "User-Agent": "linkreel-python/" + __version__}
        data = raw if raw is not None else None if body is None else json.dumps(body, ensure_ascii=False).encode()
        if data is not None:
            headers["Content-Type"] = content_type
        if method == "POST":
            headers["Idempotency-Key"] = key or str(uuid.uuid4())
        tries = 0

        def once() -> Any:
            nonlocal tries
            tries += 1
            request = urllib.request.Request(self._base + path, data=data, headers=headers, method=method)
            try:
                with self._opener.open(request, timeout=self._timeout) as answer:
                    text = answer.read()
            except urllib.error.HTTPError as error:
                refusal = _refusal(error)
                if method == "DELETE" and tries > 1 and refusal.status == 404:
                    return None  # the attempt whose answer was lost has deleted it
                raise refusal from None
            return json.loads(text) if text else None

        return self._again(once)

    def _put(self, url: str, file: BinaryIO, start: int, length: int, content_type: Optional[str], content_range: Optional[str]) -> Any:
        file.seek(start)
        headers = {"Content-Length": str(length)}
        if content_type:
            headers["Content-Type"] = content_type
        if content_range:
            headers["Content-Range"] = content_range
        # A body without a type would be called a form, which the address may not take.
        headers.setdefault("Content-Type", "application/octet-stream")
        request = urllib.request.Request(url, data=_Part(file, length) if length else b"", headers=headers, method="PUT")
        try:
            with self._opener.open(request, timeout=max(self._timeout, 300)) as answer:
                return answer.status, 0
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 308:
                    have = error.headers.get("Range", "")
                    return 308, int(have.rsplit("-", 1)[1]) + 1 if "-" in have else 0
                if error.code in (400, 403, 404, 410):
                    raise UploadGone("storage answered %d" % error.code) from None
                raise _refusal(error) from None

    def _again(self, once: Callable[[], Any]) -> Any:
        failures = 0
        while True:
            try:
                return once()
            except (OSError, APIError) as error:
                failures += 1
                self._pause(error, failures)

    def _pause(self, error: Exception, failures: int) -> None:
        """Wait before another attempt, or raise the error when there is none."""
        wait = min(0.2 * 2 ** (failures - 1), 10.0) * random.uniform(0.5, 1.0)
        if isinstance(error, APIError):
            if error.status != 429 and error.status < 500 and error.code != "IDEMPOTENCY_IN_PROGRESS":
                raise error
            if (error.retry_after or 0) > self._max_wait:
                raise error
            wait = max(wait, error.retry_after or 0)
        if failures >= self._attempts:
            raise error
        self._sleep(wait)


class _Part:
    """A stretch of a file that urllib reads like a file of its own."""

    def __init__(self, file: BinaryIO, length: int):
        self._file, self._left = file, length

    def read(self, n: int = -1) -> bytes:
        data = self._file.read(self._left if n < 0 else min(n, self._left))
        self._left -= len(data)
        return data


def _refusal(error: urllib.error.HTTPError) -> APIError:
    try:
        body = json.loads(error.read())["error"]
        assert isinstance(body, dict)
    except Exception:  # not ours: a proxy on the way
        body = {}
    after = error.headers.get("Retry-After", "")
    return APIError(error.code, body, float(after) if after.isdigit() else None)


def _given(values: JSON) -> JSON:
    return {k: v for k, v in values.items() if v is not None}


def _segment(value: str) -> str:
    if set(re.split(r"[/\\]", value)) & {".", ".."}:
        raise ValueError("%r cannot be part of a path: proxies resolve it to another path. Check the id." % value)
    return urllib.parse.quote(value, safe="")
