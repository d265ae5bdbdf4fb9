"""Tests of linkreel.py. Without LINKREEL_STACK they use a scripted server; with it
(the stack.json of a running stack) they also make links and a video there."""

import io
import json
import os
import subprocess
import tempfile
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from linkreel import CLEAR, APIError, Linkreel, UploadGone, VideoFailed, verify_webhook


class Webhooks(unittest.TestCase):
    """With the example of the Standard Webhooks specification."""

    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = '{"test": 2432232314}'
    headers = {"Webhook-Id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
               "webhook-signature": "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}

    def test_verify(self):
        def ok(secret=self.secret, headers=self.headers, body=self.body, now=1614265331):
            return verify_webhook(secret, headers, body, now=now)
        self.assertTrue(ok())
        self.assertTrue(ok(body=self.body.encode()))
        self.assertFalse(ok(body=self.body + " "))
        self.assertFalse(ok(secret="whsec_AAAA"))
        self.assertFalse(ok(secret="?"))
        self.assertFalse(ok(now=1614265330 + 301))
        self.assertFalse(ok(headers={}))
        self.assertFalse(ok(headers={**self.headers, "webhook-signature": ""}))


class Script:
    """Answers requests one after the other; the last answer repeats."""

    def __init__(self, *answers):
        self.answers, self.calls, self.waits = list(answers), [], []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def go(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                script.calls.append((self.command, self.path, dict(self.headers), body))
                answer = script.answers[min(len(script.calls), len(script.answers)) - 1]
                if callable(answer):
                    answer = answer(dict(self.headers), body)
                if answer is None:
                    self.close_connection = True
                    self.connection.close()
                    return
                status, headers, text = answer
                self.send_response(status)
                for k, v in headers.items():
                    self.send_header(k, v)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = go

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        self.api = Linkreel(self.url, "k", sleep=self.waits.append)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def ok(body, status=200):
    return status, {}, json.dumps(body).encode()


def refuse(status, code, **headers):
    return status, {k.replace("_", "-"): v for k, v in headers.items()}, json.dumps({"error": {"code": code, "message": "m", "requestId": "r"}}).encode()


class Scripted(unittest.TestCase):
    def script(self, *answers):
        s = Script(*answers)
        self.addCleanup(s.close)
        return s

    def test_a_lost_answer_is_retried_with_the_same_key(self):
        s = self.script(None, refuse(503, "UNAVAILABLE", Retry_After="3"), ok({"id": "lnk_1"}, 201))
        self.assertEqual(s.api.create_link("https://example.com", slug="a"), {"id": "lnk_1"})
        self.assertEqual(len({c[2]["Idempotency-Key"] for c in s.calls}), 1)
        self.assertGreaterEqual(s.waits[1], 3)
        self.assertEqual(json.loads(s.calls[0][3]), {"url": "https://example.com", "slug": "a"})

    def test_final_answers_are_not_retried(self):
        for status, code in ((400, "VALIDATION_ERROR"), (409, "SLUG_TAKEN"), (403, "PLAN_REQUIRED")):
            s = self.script(refuse(status, code))
            with self.assertRaises(APIError) as caught:
                s.api.create_link("https://example.com")
            self.assertEqual((caught.exception.code, caught.exception.status, len(s.calls)), (code, status, 1))

    def test_a_wait_that_is_too_long_is_not_taken(self):
        s = self.script(refuse(429, "RATE_LIMITED", Retry_After="3600"))
        with self.assertRaises(APIError):
            s.api.account()
        self.assertEqual(s.waits, [])

    def test_delete_whose_answer_was_lost(self):
        s = self.script(None, refuse(404, "LINK_NOT_FOUND"))
        self.assertIsNone(s.api.delete_link("lnk_1"))
        s = self.script(refuse(404, "LINK_NOT_FOUND"))
        with self.assertRaises(APIError):
            s.api.delete_link("lnk_1")

    def test_updates_keep_set_and_clear(self):
        s = self.script(ok({"success": True}))
        s.api.update_link("a/b", title=CLEAR, url="https://example.com")
        self.assertEqual((s.calls[0][1], json.loads(s.calls[0][3])), ("/api/v1/links/a%2Fb", {"title": None, "url": "https://example.com"}))

    def test_what_a_link_decides(self):
        s = self.script(ok({"status": 302}))
        rules = [{"name": "a", "when": {"device": ["phone"]}, "url": "https://example.com/app"}]
        s.api.create_link("https://example.com", redirect_type=308, forward_query=True, rules=rules)
        s.api.update_link("lnk_1", starts_at=CLEAR, max_clicks=5)
        s.api.explain_link("lnk_1", device="phone", query="a=1&b=2", percent=0, at=1790000000000)
        s.api.slug_available("sale", domain_id="dom_1")
        self.assertEqual([json.loads(call[3] or "null") for call in s.calls], [
            {"url": "https://example.com", "redirectType": 308, "forwardQuery": True, "rules": rules}, {"startsAt": None, "maxClicks": 5}, None, None])
        self.assertEqual([call[1] for call in s.calls[2:]], [
            "/api/v1/links/lnk_1/explain?device=phone&query=a%3D1%26b%3D2&percent=0&at=1790000000000", "/api/v1/links/available?slug=sale&domainId=dom_1"])

    def test_links_walks_pages(self):
        s = self.script(ok({"data": [{"_id": "b"}], "hasMore": True, "nextCursor": 7}), ok({"data": [{"_id": "a"}], "hasMore": False, "nextCursor": None}))
        self.assertEqual([link["_id"] for link in s.api.links()], ["b", "a"])
        self.assertEqual([c[1] for c in s.calls], ["/api/v1/links?limit=100", "/api/v1/links?limit=100&cursor=7"])

    def test_bulk_goes_in_hundreds(self):
        s = self.script(lambda h, b: ok({"results": [{"status": 201}] * len(json.loads(b)["urls"])}, 201))
        self.assertEqual(len(s.api.bulk_create([{"url": "https://example.com"}] * 250)), 250)
        self.assertEqual(len({c[2]["Idempotency-Key"] for c in s.calls}), 3)

    def test_waiting_ends_with_ready_or_failed(self):
        s = self.script(ok({"status": "processing"}), ok({"status": "ready"}))
        self.assertEqual(s.api.wait_until_ready("v")["status"], "ready")
        s = self.script(ok({"status": "failed", "error": {"code": "NOT_A_VIDEO", "message": "m"}}))
        with self.assertRaises(VideoFailed) as caught:
            s.api.wait_until_ready("v")
        self.assertEqual(caught.exception.code, "NOT_A_VIDEO")
        s = self.script(ok({"status": "processing"}))
        with self.assertRaises(TimeoutError):
            s.api.wait_until_ready("v", timeout=5)

    def test_session_upload_goes_on_after_a_break(self):
        content, got, breaks = os.urandom(600_000), bytearray(), [True]

        def storage(headers, body):
            span = headers["Content-Range"]
            if "*/" not in span:
                start = int(span.split()[1].split("-")[0])
                if start != len(got):
                    return 503, {}, b""
                if breaks and start > 0:
                    breaks.pop()
                    got.extend(body[:1000])
                    return None
                got.extend(body)
            if len(got) == len(content):
                return 200, {}, b""
            return 308, {"Range": "bytes=0-%d" % (len(got) - 1)} if got else {}, b""

        s, seen = self.script(storage), []
        s.api.upload({"resumableUploadUrl": s.url}, io.BytesIO(content), part=256 << 10, progress=lambda n, total: seen.append(n))
        self.assertEqual((bytes(got), seen[-1], breaks), (content, len(content), []))

    def test_session_upload_that_gets_nowhere_ends(self):
        s = self.script(lambda headers, body: (308, {}, b"") if "*/" in headers["Content-Range"] else None)
        with self.assertRaises(OSError):
            s.api.upload({"resumableUploadUrl": s.url}, io.BytesIO(b"file"))
        self.assertLess(len(s.calls), 20)

    def test_plain_upload_and_a_dead_address(self):
        s = self.script(None, ok({}))
        s.api.upload({"uploadUrl": s.url + "/o"}, io.BytesIO(b"file"), content_type="video/mp4")
        self.assertEqual((s.calls[1][3], s.calls[1][2]["Content-Type"]), (b"file", "video/mp4"))
        s = self.script((403, {}, b"<Code>ExpiredToken</Code>"))
        with self.assertRaises(UploadGone):
            s.api.upload({"uploadUrl": s.url}, io.BytesIO(b"file"))

    def test_an_id_that_is_a_dot_segment_is_not_sent(self):
        s = self.script((204, {}, b""))
        for value in (".", "..", "x/..", "..\\x"):
            with self.assertRaises(ValueError):
                s.api.delete_captions("vid_1", value)
            with self.assertRaises(ValueError):
                s.api.delete_link(value)
        self.assertEqual(s.calls, [])
        s.api.delete_captions("vid_1", "...")
        self.assertEqual(len(s.calls), 1)

    def test_a_key_is_not_carried_to_another_host(self):
        s = self.script((302, {"Location": "http://127.0.0.1:1/"}, b""))
        with self.assertRaises(APIError) as caught:
            s.api.account()
        self.assertEqual(caught.exception.status, 302)


@unittest.skipUnless(os.environ.get("LINKREEL_STACK"), "LINKREEL_STACK names no running stack")
class Running(unittest.TestCase):
    def setUp(self):
        with open(os.environ["LINKREEL_STACK"], encoding="utf-8") as file:
            stack = json.load(file)
        self.api = Linkreel(stack["baseUrl"], stack["keys"]["business"])

    def test_links(self):
        made = self.api.create_link("https://example.com/python", title="Ünïcode")
        self.assertEqual(self.api.link(made["id"])["title"], "Ünïcode")
        self.api.update_link(made["id"], title=CLEAR)
        self.assertEqual(self.api.link(made["id"])["title"], "")
        self.assertIn(made["id"], [link["_id"] for link in self.api.links()])
        self.api.delete_link(made["id"])
        with self.assertRaises(APIError) as caught:
            self.api.link(made["id"])
        self.assertEqual(caught.exception.code, "LINK_NOT_FOUND")
        self.assertEqual([r["status"] for r in self.api.bulk_create([{"url": "https://example.com"}, {"url": "x"}])], [201, 400])

    def test_video(self):
        with tempfile.TemporaryDirectory() as folder:
            clip = os.path.join(folder, "clip.mp4")
            subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:d=2", "-pix_fmt", "yuv420p", clip], check=True)
            video = self.api.upload_video(clip, timeout=120)
        self.assertEqual((video["status"], video["title"]), ("ready", "clip"))
        self.api.delete_video(video["id"])


if __name__ == "__main__":
    unittest.main()
