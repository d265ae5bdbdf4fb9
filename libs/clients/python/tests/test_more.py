"""Bulk, uploads, waiting, the feed of events, webhooks and asyncio."""

import asyncio
import email.message
import io
import os
import tempfile
import threading
import time
import unittest

from linkreel import (
    APIConnectionError, APIError, APITimeoutError, BulkError, ClosedError, CursorLostError, NotFoundError, RateLimitError, UploadError, UploadGoneError,
    VideoFailedError,
    WaitTimeout, WebhookError, receive_webhook, verify_webhook,
)

from .hostile import DROP, Answer, ok, refuse
from .test_calls import LINK, Case


def made(request):
    return ok({"results": [{"status": 201, "data": {"id": item["url"][20:]}} for item in request.json["urls"]]}, 201)


class Bulk(Case):
    def test_any_number_goes_in_requests_that_the_api_takes(self):
        s = self.server(made)
        with s.client() as client:
            items = [{"url": "https://example.com/%d" % i} for i in range(250)]
            self.assertEqual([r["data"]["id"] for r in client.create_links(iter(items))], [str(i) for i in range(250)])
            self.assertEqual([len(c.json["urls"]) for c in s.calls], [100, 100, 50])
            self.assertEqual(len({c.headers["Idempotency-Key"] for c in s.calls}), 3)
            self.assertEqual(client.create_links([]), [])
            s.calls.clear()
            client.create_links([{"url": "https://example.com/", "title": "ü" * 100_000}] * 20)
        self.assertEqual(sum(len(c.json["urls"]) for c in s.calls), 20)
        self.assertLessEqual(max(len(c.body) for c in s.calls), 1 << 20)
        self.assertEqual(len(s.calls), 4)

    def test_changes_and_deletions(self):
        s = self.server(lambda request: ok({"results": [{"id": i, "status": 200} for i in request.json["ids"]]}))
        with s.client() as client:
            ids = ["lnk_%d" % i for i in range(101)]
            self.assertEqual([r["id"] for r in client.update_links(ids, {"archived": True})], ids)
            self.assertEqual([r["id"] for r in client.delete_links(ids)], ids)
        self.assertEqual([(c.method, c.path) for c in s.calls],
                         [("PATCH", "/api/v1/links/bulk")] * 2 + [("POST", "/api/v1/links/bulk-delete")] * 2)
        self.assertEqual(s.calls[1].json, {"ids": ["lnk_100"], "set": {"archived": True}})

    def test_an_error_halfway_keeps_what_is_done_and_the_call_can_be_repeated(self):
        s = self.server(made, made, refuse(429, "RATE_LIMITED", {"Retry-After": "600"}), made)
        items = [{"url": "https://example.com/%d" % i} for i in range(420)]
        with s.client() as client:
            with self.assertRaises(BulkError) as caught:
                client.create_links(items)
            error = caught.exception
            self.assertEqual(([r["data"]["id"] for r in error.results], error.unsure, error.unsent),
                             ([str(i) for i in range(200)], items[200:300], items[300:]))
            self.assertIsInstance(error.__cause__, RateLimitError)
            keys = [c.headers["Idempotency-Key"] for c in s.calls]
            self.assertEqual(len(client.create_links(items, options={"idempotency_key": error.idempotency_key})), 420)
        self.assertEqual([c.headers["Idempotency-Key"] for c in s.calls[3:6]], keys)


    def test_what_cannot_be_sent_is_found_before_anything_is_sent(self):
        s = self.server(made)
        items = [{"url": "https://example.com/%d" % i} for i in range(150)] + [{"url": "x", "expiresAt": object()}]
        with s.client() as client, self.assertRaises(TypeError):
            client.create_links(items)
        self.assertEqual(s.calls, [])

    def test_any_error_halfway_keeps_what_is_done(self):
        def told(response):
            if len(s.calls) == 2:
                raise RuntimeError("no")
        for answers, options in (((made, ok({})), {}), ((made,), {"on_response": told})):
            s = self.server(*answers)
            items = [{"url": "https://example.com/%d" % i} for i in range(150)]
            with s.client(attempts=1) as client, self.assertRaises(BulkError) as caught:
                client.create_links(items, options=options)
            self.assertEqual((len(caught.exception.results), caught.exception.unsure), (100, items[100:]))

    def test_the_requests_share_the_whole_time(self):
        now = [0.0]

        def slow(request):
            now[0] += 4
            return refuse(503, "UNAVAILABLE", {"Retry-After": "4"}) if now[0] == 4 else made(request)
        s = self.server(slow, slow, refuse(503, "UNAVAILABLE", {"Retry-After": "4"}))
        with s.client() as client:
            client._clock = lambda: now[0]
            with self.assertRaises(BulkError) as caught:
                client.create_links([{"url": "https://example.com/%d" % i} for i in range(150)], options={"total_timeout": 10})
        self.assertEqual((len(caught.exception.results), len(s.calls)), (100, 3))


class Storage:
    """A session of object storage. It takes a part only at the right place, and breaks off now and then."""

    def __init__(self, breaks):
        self.got, self.breaks, self.requests = bytearray(), breaks, 0

    def __call__(self, request):
        self.requests += 1
        span, _, total = request.headers["Content-Range"].partition(" ")[2].partition("/")
        if span != "*":
            start = int(span.split("-")[0])
            if start != len(self.got):
                return Answer(503)
            if self.breaks and start > 0:
                self.breaks -= 1
                self.got += request.body[:1000]
                return DROP
            self.got += request.body
        if len(self.got) == int(total):
            return Answer(200, b"{}")
        return Answer(308, b"", {"Range": "bytes=0-%d" % (len(self.got) - 1)} if self.got else {})


class Uploads(Case):
    def test_a_session_resumes_after_breaks(self):
        content, storage, seen = os.urandom(900_000), Storage(3), []
        s = self.server(storage)
        with s.client(attempts=2) as client:
            client.upload({"resumableUploadUrl": s.url}, io.BytesIO(content), part=256 << 10, progress=lambda sent, size: seen.append((sent, size)))
        self.assertEqual((bytes(storage.got), storage.breaks, seen[-1]), (content, 0, (900_000, 900_000)))
        self.assertGreater(len(seen), 10)
        self.assertNotIn("Authorization", s.calls[0].headers)

    def test_another_program_sends_only_the_rest(self):
        content, storage = os.urandom(600_000), Storage(0)
        storage.got += content[:400_000]
        s = self.server(storage)
        with s.client() as client:
            client.upload({"resumableUploadUrl": s.url}, io.BytesIO(content))
        self.assertEqual((bytes(storage.got), sum(len(c.body) for c in s.calls)), (content, 200_000))

    def test_an_empty_file(self):
        s = self.server(Storage(0))
        with s.client() as client:
            client.upload({"resumableUploadUrl": s.url}, io.BytesIO(b""))
        self.assertEqual(s.calls[0].headers["Content-Range"], "bytes */0")

    def test_storage_that_takes_nothing_ends(self):
        for answer in (lambda request: Answer(308) if "*/" in request.headers["Content-Range"] else DROP, Answer(308), Answer(503), Answer(302)):
            s = self.server(answer)
            with s.client() as client, self.assertRaises(UploadError):
                client.upload({"resumableUploadUrl": s.url + "/?signature=secret"}, io.BytesIO(b"file"))
            self.assertLess(len(s.calls), 20)

    def test_a_plain_address(self):
        s = self.server(DROP, Answer(200))
        with s.client() as client:
            client.upload({"uploadUrl": s.url + "/o?signature=1"}, io.BytesIO(b"file"), content_type="video/mp4")
        self.assertEqual((s.calls[1].body, s.calls[1].path, s.calls[1].headers["Content-Type"]), (b"file", "/o?signature=1", "video/mp4"))
        for status in (400, 403, 404, 410, 499):
            s = self.server(Answer(status, b"<Code>ExpiredToken</Code>"))
            with s.client() as client, self.assertRaises(UploadGoneError) as caught:
                client.upload({"uploadUrl": s.url + "/?signature=secret"}, io.BytesIO(b"file"))
            self.assertEqual(caught.exception.status, status)
            self.assertNotIn("secret", str(caught.exception))
        with s.client() as client, self.assertRaises(UploadGoneError):
            client.upload({"status": "ready"}, io.BytesIO(b"file"))

    def test_an_error_of_the_file_or_of_the_callback_is_no_error_of_the_network(self):
        class Disk(io.BytesIO):
            def read(self, size=-1):
                raise OSError("The disk is broken.")

        def progress(sent, size):
            raise BrokenPipeError("Nobody reads this.")
        for file, call, text in ((Disk(b"x" * 200_000), None, "disk"), (io.BytesIO(b"x" * 200_000), progress, "Nobody")):
            s = self.server(Answer(200))
            with s.client() as client, self.assertRaisesRegex(OSError, text):
                client.upload({"uploadUrl": s.url}, file, progress=call)
            self.assertEqual(s.waits, [])

    def test_storage_that_says_how_far_it_got_in_strange_digits(self):
        for value in ("bytes=0-" + "9" * 5000, "bytes=0-\u00b2"):
            s = self.server(Answer(308, b"", {"Range": value}))
            with s.client() as client, self.assertRaises(UploadError):
                client.upload({"resumableUploadUrl": s.url}, io.BytesIO(b"film"))

    def test_an_error_has_the_video_that_was_created(self):
        s = self.server(lambda request: Answer(404) if request.method == "PUT" else ok({"videoId": "vid_1", "uploadUrl": s.url}, 201))
        with s.client() as client, self.assertRaises(UploadGoneError) as caught:
            client.upload_video(io.BytesIO(b"film"))
        self.assertEqual(caught.exception.video["videoId"], "vid_1")

    def test_an_upload_has_a_bound(self):
        s = self.server(Answer(503, b"", {"Retry-After": "20"}))
        with s.client() as client, self.assertRaises(UploadError):
            client.upload({"uploadUrl": s.url}, io.BytesIO(b"film"), options={"total_timeout": 10})
        self.assertEqual(s.waits, [])

    def test_a_pipe_and_a_wrong_part_are_refused(self):
        read, write = os.pipe()
        os.close(write)
        s = self.server(Answer(200))
        with s.client() as client:
            with open(read, "rb") as pipe, self.assertRaises(ValueError):
                client.upload({"uploadUrl": s.url}, pipe)
            with self.assertRaises(ValueError):
                client.upload({"uploadUrl": s.url}, io.BytesIO(b""), part=1000)

    def test_a_video_from_file_to_ready(self):
        def answer(request):
            if request.method == "PUT":
                return Answer(200)
            if "events" in request.path:
                return refuse(403, "INSUFFICIENT_SCOPE")
            if request.method == "POST":
                return ok({"videoId": "vid_1", "uploadUrl": s.url + "/o"}, 201)
            states.append({"id": "vid_1", "status": "ready" if len(states) == 2 else "processing"})
            return ok(states[-1])
        states, seen = [], []
        s = self.server(answer)
        with tempfile.TemporaryDirectory() as folder, s.client() as client:
            path = os.path.join(folder, "clip.mp4")
            with open(path, "wb") as file:
                file.write(b"film")
            video = client.upload_video(path, tags=["a"], privacy="unlisted", progress=lambda sent, size: seen.append((sent, size)))
        self.assertEqual((video["status"], len(s.waits), seen), ("ready", 2, [(4, 4)]))
        self.assertEqual(s.calls[0].json, {"title": "clip", "tags": ["a"], "privacy": "unlisted"})
        self.assertEqual(s.calls[1].headers["Content-Type"], "video/mp4")


class Waiting(Case):
    def test_a_key_that_may_read_events_waits_for_them(self):
        def answer(request):
            if "events" in request.path:
                return ok({"data": [{"id": "evt_1"}], "hasMore": False, "nextCursor": "c%d" % len(s.calls)})
            return ok({"status": "ready" if len(s.calls) > 5 else "processing"})
        s = self.server(answer)
        with s.client() as client:
            self.assertEqual(client.wait_until_ready("vid_1")["status"], "ready")
        self.assertEqual([c.path for c in s.calls if "events" in c.path], [
            "/api/v1/events?object=vid_1&limit=1", "/api/v1/events?object=vid_1&after=evt_1&wait=5",
            "/api/v1/events?object=vid_1&after=c3&wait=5"])
        self.assertEqual(s.waits, [])

    def test_waiting_ends_with_a_failure_or_at_the_limit(self):
        s = self.server(refuse(403, "INSUFFICIENT_SCOPE"), ok({"status": "failed", "error": {"code": "NOT_A_VIDEO", "message": "Not a video."}}))
        with s.client() as client, self.assertRaises(VideoFailedError) as caught:
            client.wait_until_ready("vid_1")
        self.assertEqual(caught.exception.code, "NOT_A_VIDEO")
        s = self.server(refuse(403, "INSUFFICIENT_SCOPE"), ok({"status": "processing"}))
        with s.client() as client:
            now = [0.0]
            client._clock = lambda: now[0]

            def sleep(seconds, cancel):
                now[0] += seconds
            client._sleep = sleep
            with self.assertRaises(WaitTimeout) as late:
                client.wait_until_ready("vid_1", timeout=60)
        self.assertEqual((now[0], late.exception.video["status"]), (60.0, "processing"))
        self.assertIsInstance(late.exception, TimeoutError)


    def test_an_outage_is_borne(self):
        s = self.server(refuse(403, "INSUFFICIENT_SCOPE"), ok({"status": "processing"}), DROP, refuse(503, "UNAVAILABLE"), DROP,
                        ok({"status": "ready"}))
        with s.client(attempts=1) as client:
            self.assertEqual(client.wait_until_ready("vid_1")["status"], "ready")
        for answer, kind in ((DROP, APIConnectionError), (refuse(404, "VIDEO_NOT_FOUND"), NotFoundError)):
            s, now = self.server(answer), [0.0]
            with s.client(attempts=1) as client:
                client._clock = lambda: now[0]

                def sleep(seconds, cancel):
                    now[0] += seconds
                client._sleep = sleep
                with self.assertRaises(kind):
                    client.wait_until_ready("vid_1")
            self.assertAlmostEqual(now[0], 300.0 if answer is DROP else 0.0)

    def test_a_service_that_hangs_does_not_prolong_the_wait(self):
        s = self.server(lambda request: refuse(403, "INSUFFICIENT_SCOPE") if "events" in request.path else
                        ok({"status": "processing"}, hang=len(s.calls) > 2))
        begin = time.monotonic()
        with s.client() as client, self.assertRaises(WaitTimeout):
            client.wait_until_ready("vid_1", timeout=0.3)
        self.assertLess(time.monotonic() - begin, 10)


class Feed:
    """Events 1, 2, 3 … in pages of two; after them requests come back empty."""

    def __init__(self, events):
        self.events, self.down = events, 0

    def __call__(self, request):
        if self.down:
            self.down -= 1
            return DROP
        query = dict(pair.split("=") for pair in request.path.split("?")[1].split("&"))
        if "after" not in query:
            return ok({"data": [{"id": str(self.events)}] if self.events else [], "hasMore": False, "nextCursor": None})
        start = int(query["after"] or 0)
        data = [{"id": str(i + 1), "type": "link.created"} for i in range(start, min(start + 2, self.events))]
        return ok({"data": data, "hasMore": False, "nextCursor": str(start + len(data))})


class Following(Case):
    def test_a_feed_goes_on_where_another_stopped(self):
        source = Feed(5)
        s = self.server(source)
        with s.client() as client:
            feed = client.follow_events(after="")
            self.assertEqual([(next(feed)["id"], feed.cursor) for _ in range(3)], [("1", "1"), ("2", "2"), ("3", "3")])
            again = client.follow_events(after=feed.cursor, type=["link.created", "link.deleted"], object="lnk_1")
            self.assertEqual([next(again)["id"] for _ in range(2)], ["4", "5"])
        self.assertIn("type=link.created&type=link.deleted&object=lnk_1&after=3&wait=25&limit=100", s.calls[-1].path)

    def test_without_a_place_it_begins_now(self):
        source = Feed(5)
        s = self.server(source)
        with s.client() as client:
            feed = client.follow_events()
            self.assertEqual(feed.cursor, "5")
            source.events = 7
            self.assertEqual([next(feed)["id"], next(feed)["id"], feed.cursor], ["6", "7", "7"])

    def test_a_restart_loses_nothing(self):
        source = Feed(2)
        s = self.server(source)
        with s.client(attempts=2) as client:
            feed = client.follow_events(after="")
            self.assertEqual([next(feed)["id"], next(feed)["id"]], ["1", "2"])
            source.down, source.events = 9, 4
            self.assertEqual([next(feed)["id"], next(feed)["id"]], ["3", "4"])

    def test_patience_ends(self):
        s = self.server(DROP)
        now = [0.0]
        with s.client(attempts=1) as client:
            client._clock = lambda: now[0]

            def sleep(seconds, cancel):
                now[0] += seconds
            client._sleep = sleep
            with self.assertRaises(Exception) as caught:
                next(client.follow_events(after="1", patience=60))
        self.assertEqual(type(caught.exception).__name__, "APIConnectionError")
        self.assertTrue(60 <= now[0] < 70, now)

    def test_a_wait_that_the_service_asks_for_has_a_bound(self):
        s, now, waits = self.server(refuse(429, "RATE_LIMITED", {"Retry-After": "86400"})), [0.0], []
        with s.client(attempts=1, max_wait=40) as client:
            client._clock = lambda: now[0]

            def sleep(seconds, cancel):
                now[0] += seconds
                waits.append(seconds)
            client._sleep = sleep
            with self.assertRaises(RateLimitError):
                next(client.follow_events(after="1", patience=100))
        self.assertEqual(waits, [40, 40, 20])

    def test_a_place_that_is_gone_has_its_own_error(self):
        for refusal in (refuse(410, "GONE"), refuse(400, "INVALID_CURSOR")):
            s = self.server(refusal)
            with s.client() as client, self.assertRaises(CursorLostError) as caught:
                next(client.follow_events(after="old"))
            self.assertIsInstance(caught.exception, APIError)


class Webhooks(unittest.TestCase):
    """With the example of the Standard Webhooks specification."""

    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = '{"test": 2432232314}'
    headers = {"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
               "webhook-signature": "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}

    def test_genuine_messages_in_every_form(self):
        lower = {name.lower(): value for name, value in self.headers.items()}
        message = email.message.Message()
        for name, value in self.headers.items():
            message[name.upper()] = value
        for headers in (self.headers, lower, {n.title(): v for n, v in lower.items()}, list(lower.items()), message,
                        [(n.encode(), v.encode()) for n, v in lower.items()], {n: [v] for n, v in lower.items()}):
            self.assertTrue(verify_webhook(self.secret, headers, self.body, now=1614265331), headers)
        self.assertTrue(verify_webhook(self.secret + "\n", self.headers, self.body.encode(), now=1614265331))
        for secrets in ([self.secret, "whsec_AAAA"], ["whsec_AAAA", self.secret]):  # while one replaces the other
            self.assertTrue(verify_webhook(secrets, self.headers, self.body, now=1614265331))

    def test_a_refusal_says_why(self):
        def why(secret=self.secret, headers=self.headers, body=self.body, now=1614265331):
            self.assertFalse(verify_webhook(secret, headers, body, now=now))
            with self.assertRaises(WebhookError) as caught:
                receive_webhook(secret, headers, body, now=now)
            return caught.exception.reason
        self.assertEqual(why(body=self.body + " "), "no_match")
        self.assertEqual(why(secret="whsec_AAAA"), "no_match")
        for secret in ("?", "", "whsec_", []):
            self.assertEqual(why(secret=secret), "bad_secret")
        self.assertEqual(why(now=1614265330 + 301), "too_old")
        self.assertEqual(why(now=1614265330 - 301), "in_future")
        self.assertEqual(why(headers={}), "missing_header")
        self.assertEqual(why(headers={**self.headers, "webhook-signature": ""}), "missing_header")
        self.assertEqual(why(headers={**self.headers, "webhook-signature": "v1,\ud800"}), "no_match")
        for stamp in ("x", "1e9", "-1", "٣", "9" * 300, "9" * 5000):
            self.assertEqual(why(headers={**self.headers, "webhook-timestamp": stamp}), "bad_timestamp")
        with self.assertRaises(WebhookError) as caught:
            receive_webhook(self.secret, self.headers, self.body, now=1614265331)
        self.assertEqual(caught.exception.reason, "bad_body")


class Asynchronous(Case):
    def test_the_same_calls(self):
        s = self.server(lambda request: ok({"data": [LINK], "hasMore": "cursor" not in request.path, "nextCursor": 1})
                        if request.method == "GET" else ok(LINK, 201))

        async def main():
            seen = []
            async with s.async_client() as client:
                self.assertEqual(await client.create_link("https://example.com", options={"on_response": seen.append}), LINK)
                self.assertEqual((seen[0].status, threading.current_thread()), (201, threading.main_thread()))
                self.assertEqual([link async for link in client.links()], [LINK, LINK])
                async for link in client.links():
                    break
                await asyncio.gather(*(client.request("GET", "/x") for _ in range(40)))
                with self.assertRaises(TypeError):
                    await client.get_account(options={"cancel": None})
        asyncio.run(main())

    def test_errors_and_files(self):
        def answer(request):
            if request.method == "PUT":
                return Answer(200)
            return ok({"status": "ready"}) if request.path.startswith("/api/v1/videos") else refuse(404, "LINK_NOT_FOUND")
        s, seen = self.server(answer), []

        async def main():
            async with s.async_client() as client:
                with self.assertRaises(NotFoundError):
                    await client.get_link("lnk_1")
                await client.upload({"uploadUrl": s.url}, io.BytesIO(b"x" * 200_000), progress=lambda sent, size: seen.append(sent))
                self.assertEqual((await client.wait_until_ready("vid_1"))["status"], "ready")
        asyncio.run(main())
        self.assertEqual(seen[-1], 200_000)

    def test_a_closed_client_says_so(self):
        s = self.server(ok({}))

        async def main():
            client = s.async_client()
            await client.close()
            with self.assertRaises(ClosedError):
                await client.get_account()
        asyncio.run(main())

    def test_a_cancelled_task_ends_at_once_and_frees_its_thread(self):
        s = self.server(ok({}, hang=True))

        async def main():
            async with s.async_client(threads=1, timeout=60) as client:
                for n in range(3):
                    task = asyncio.create_task(client.get_account())
                    while len(s.calls) == n:
                        await asyncio.sleep(0.005)
                    task.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await task
                with self.assertRaises(APITimeoutError):  # the only thread is free
                    await client.get_account(options={"timeout": 0.2, "attempts": 1})
        begin = time.monotonic()
        asyncio.run(main())
        self.assertLess(time.monotonic() - begin, 30)

    def test_the_loop_is_never_blocked(self):
        s = self.server(ok({}, hang=True))

        async def main():
            async with s.async_client() as client:
                task, turns = asyncio.create_task(client.get_account()), 0
                while not s.calls or turns < 100:
                    await asyncio.sleep(0)
                    turns += 1
                s.stopped.set()
                self.assertEqual(await task, {})
        asyncio.run(main())

    def test_a_feed_can_be_read_on_after_a_wait_that_was_cancelled(self):
        source = Feed(2)
        s = self.server(source)

        async def main():
            async with s.async_client() as client:
                feed = await client.follow_events(after="")
                self.assertEqual([(await feed.__anext__())["id"], (await feed.__anext__())["id"]], ["1", "2"])
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(feed.__anext__(), 0.05)
                source.events = 4
                self.assertEqual([(await feed.__anext__())["id"], (await feed.__anext__())["id"], feed.cursor], ["3", "4", "4"])
        asyncio.run(main())


if __name__ == "__main__":
    unittest.main()
