"""What every call does: attempts, errors, options, values, connections."""

import os
import socket
import threading
import unittest
import unittest.mock
from datetime import date, datetime, timedelta, timezone

from linkreel import (
    APIConnectionError, APIError, APITimeoutError, AuthenticationError, Cancel, Cancelled, Client, ClosedError, ConflictError, GoneError,
    NotFoundError, NotModified, PermissionDeniedError, PreconditionFailedError, RateLimitError, ServerError, UNSET, UnexpectedAnswerError,
    ValidationError,
)

from .hostile import DROP, Answer, Server, ok, refuse

LINK = {"id": "lnk_1", "slug": "a"}
PORTAL = Answer(200, b"<html>Sign in to the hotel</html>", {"Content-Type": "text/html"})


class Case(unittest.TestCase):
    def server(self, *answers):
        server = Server(*answers)
        self.addCleanup(server.close)
        return server


class Attempts(Case):
    def test_every_broken_answer_is_tried_again_with_the_same_key(self):
        broken = {
            "dropped": DROP, "cut": ok(LINK, cut=True), "cut in chunks": ok(LINK, chunked=True, cut=True), "a portal": PORTAL,
            "half a JSON": Answer(201, b'{"id": "ln', {"Content-Type": "application/json"}), "a list": ok([1]),
            "a proxy": Answer(502, b"Bad gateway"), "busy": refuse(503, "UNAVAILABLE"), "twice": refuse(409, "IDEMPOTENCY_IN_PROGRESS"),
        }
        for name, answer in broken.items():
            for method in ("create_link", "get_link"):
                with self.subTest(name, method=method):
                    s = self.server(answer, ok(LINK))
                    with s.client() as client:
                        self.assertEqual(getattr(client, method)("https://example.com"), LINK)
                    self.assertEqual(len(s.calls), 2)
                    self.assertEqual(len({c.headers.get("Idempotency-Key") for c in s.calls}), 1)
                    self.assertEqual(len({c.body for c in s.calls}), 1)

    def test_chunks_are_read(self):
        s = self.server(ok(LINK, chunked=True))
        with s.client() as client:
            self.assertEqual(client.get_link("lnk_1"), LINK)
            self.assertEqual(client.get_link("lnk_1"), LINK)
        self.assertEqual(len({c.connection for c in s.calls}), 1)

    def test_what_never_gets_better_ends_with_a_typed_error(self):
        for answer, kind in ((DROP, APIConnectionError), (ok(LINK, cut=True), APIConnectionError), (PORTAL, UnexpectedAnswerError),
                             (Answer(502, b""), ServerError), (refuse(429, "RATE_LIMITED"), RateLimitError)):
            s = self.server(answer)
            with s.client(attempts=3) as client, self.assertRaises(kind):
                client.create_link("https://example.com")
            self.assertEqual((len(s.calls), len(s.waits)), (3, 2))

    def test_nobody_answers(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            client = Client("http://127.0.0.1:%d" % free.getsockname()[1], "k", attempts=1)
        with self.assertRaises(APIConnectionError):
            client.get_account()

    def test_a_wait_is_as_long_as_the_service_asks(self):
        s = self.server(refuse(429, "RATE_LIMITED", {"Retry-After": "7"}), ok({}))
        with s.client() as client:
            client.get_account()
        self.assertEqual(s.waits, [7.0])
        later = (datetime.now(timezone.utc) + timedelta(seconds=30)).strftime("%a, %d %b %Y %H:%M:%S GMT")
        s = self.server(refuse(503, "UNAVAILABLE", {"Retry-After": later}), ok({}))
        with s.client() as client:
            client.get_account()
        self.assertTrue(20 < s.waits[0] <= 30, s.waits)
        s = self.server(refuse(429, "RATE_LIMITED", {"Retry-After": "3600"}))
        with s.client() as client, self.assertRaises(RateLimitError) as caught:
            client.get_account()
        self.assertEqual((s.waits, caught.exception.retry_after), ([], 3600.0))

    def test_a_delete_whose_answer_was_lost_is_done(self):
        for lost in (DROP, refuse(503, "UNAVAILABLE")):
            s = self.server(lost, refuse(404, "WEBHOOK_NOT_FOUND"))
            with s.client() as client:
                self.assertIsNone(client.delete_webhook("whk_1"))
        for first in ((), (refuse(429, "RATE_LIMITED"),)):  # nothing was deleted before
            s = self.server(*first, refuse(404, "LINK_NOT_FOUND"))
            with s.client() as client, self.assertRaises(NotFoundError):
                client.delete_link("lnk_1")

    def test_an_account_that_is_gone_is_no_answer_of_a_deletion(self):
        s = self.server(DROP, refuse(404, "NOT_FOUND"))
        with s.client() as client, self.assertRaises(NotFoundError):
            client.admin_delete_account("acc_1")

    def test_a_post_that_takes_no_key_is_not_repeated_when_it_may_be_done(self):
        for answer, kind in ((DROP, APIConnectionError), (refuse(503, "UNAVAILABLE"), ServerError), (ok({}, cut=True), APIConnectionError)):
            s = self.server(answer)
            with s.client() as client, self.assertRaises(kind):
                client.admin_create_sign_in_link("acc_1")
            self.assertEqual((len(s.calls), s.calls[0].headers.get("Idempotency-Key")), (1, None))
        s = self.server(refuse(429, "RATE_LIMITED"), ok({}))
        with s.client() as client:
            client.admin_create_sign_in_link("acc_1")
            client.create_device_code(name="laptop")
        self.assertEqual(len(s.calls), 3)

    def test_a_change_that_an_earlier_attempt_may_have_made_is_nobody_elses(self):
        for lost in (DROP, refuse(503, "UNAVAILABLE"), ok({}, cut=True)):
            s = self.server(lost, refuse(412, "PRECONDITION_FAILED"))
            with s.client() as client, self.assertRaisesRegex(APIConnectionError, "Read the record"):
                client.update_link("lnk_1", title="b", options={"if_match": '"7"'})
        for first in ((), (refuse(429, "RATE_LIMITED"),)):  # nothing was changed before
            s = self.server(*first, refuse(412, "PRECONDITION_FAILED"))
            with s.client() as client, self.assertRaises(PreconditionFailedError):
                client.update_link("lnk_1", title="b", options={"if_match": '"7"'})

    def test_a_wait_in_strange_digits_is_none(self):
        for text in ("\u00b2", "9" * 400):
            s = self.server(refuse(429, "RATE_LIMITED", {"Retry-After": text}), ok({}))
            with s.client() as client:
                try:
                    client.get_account()
                except RateLimitError:
                    self.assertEqual(text[0], "9")  # longer than max_wait

    def test_a_slow_answer_ends_in_time(self):
        for slow in (ok(LINK, hang=True), ok({"text": "x" * 5000}, drip=True)):
            s = self.server(slow)
            with s.client(timeout=0.3, attempts=1) as client, self.assertRaises(APITimeoutError) as caught:
                client.get_link("lnk_1")
            self.assertIsInstance(caught.exception, TimeoutError)

    def test_the_whole_call_has_a_bound(self):
        s = self.server(refuse(503, "UNAVAILABLE", {"Retry-After": "20"}))
        with s.client() as client, self.assertRaises(ServerError):
            client.get_account(options={"total_timeout": 10})
        self.assertEqual(s.waits, [])

    def test_a_cancel_ends_a_call_at_once(self):
        s = self.server(ok(LINK, hang=True))
        cancel, errors = Cancel(), []

        def call():
            try:
                client.get_link("lnk_1", options={"cancel": cancel})
            except Exception as error:
                errors.append(error)
        with s.client() as client:
            thread = threading.Thread(target=call)
            thread.start()
            while not s.calls:
                thread.join(0.005)
            cancel.cancel()
            thread.join(10)
            self.assertIsInstance(errors[0], Cancelled)
            with self.assertRaises(Cancelled):
                client.get_account(options={"cancel": cancel})
        self.assertEqual(len(s.calls), 1)


class Errors(Case):
    def test_each_status_has_a_class(self):
        for status, kind in ((400, ValidationError), (401, AuthenticationError), (403, PermissionDeniedError), (404, NotFoundError),
                             (405, ValidationError), (409, ConflictError), (410, GoneError), (412, PreconditionFailedError),
                             (413, ValidationError), (422, ValidationError), (302, APIError)):
            s = self.server(refuse(status, "A_CODE", details=[{"field": "url", "code": "required", "message": "This field is required."}]))
            with s.client() as client, self.assertRaises(kind) as caught:
                client.create_link("x")
            error = caught.exception
            self.assertEqual((error.status, error.code, error.message, error.request_id, error.doc_url, error.details[0]["field"], len(s.calls)),
                             (status, "A_CODE", "Not like this.", "req_1", s.url + "/docs/guides/errors#a_code", "url", 1))
            self.assertIn("url: This field is required.", str(error))
            self.assertIn(error.doc_url, str(error))

    def test_a_record_that_has_changed_tells_its_version(self):
        s = self.server(refuse(412, "PRECONDITION_FAILED", headers={"ETag": '"r3"'}))
        with s.client() as client, self.assertRaises(PreconditionFailedError) as caught:
            client.update_link("lnk_1", title="x", options={"if_match": '"r2"'})
        self.assertEqual(caught.exception.etag, '"r3"')

    def test_an_error_that_a_proxy_made(self):
        for body in (b"<html>", b"[]", b'{"error": "no"}', b"\xff", b"[" * 100_000):
            s = self.server(Answer(403, body))
            with s.client() as client, self.assertRaises(PermissionDeniedError) as caught:
                client.get_account()
            self.assertEqual(caught.exception.code, "HTTP_403")

    def test_no_redirect_is_followed(self):
        s = self.server(Answer(302, b"", {"Location": "http://127.0.0.1:1/"}))
        with s.client() as client, self.assertRaises(APIError) as caught:
            client.get_account()
        self.assertEqual(caught.exception.status, 302)

    def test_keys_that_cannot_be_right(self):
        for key in ("", "  \n", "lr_live_secret\nlr_live_other", "lr_live_secret\x00", "lr_live_sécret", "lr_live secret"):
            with self.assertRaises(ValueError) as caught:
                Client("https://linkreel.example", key)
            self.assertNotIn("secret", str(caught.exception))
        s = self.server(ok({}))
        with s.client("lr_live_x\n") as client:
            client.get_account()
        with s.client(None) as client:
            client.create_device_code(name="laptop")
        self.assertEqual([c.headers.get("Authorization") for c in s.calls], ["Bearer lr_live_x", None])

    def test_addresses_that_cannot_be_right(self):
        for base in ("", "linkreel.example", "ftp://linkreel.example", "https://", "https://u:p@linkreel.example", "https://a.example?x=1"):
            with self.assertRaises(ValueError):
                Client(base, "k")

    def test_a_header_with_a_line_break_is_not_shown(self):
        s = self.server(ok({}))
        with s.client() as client, self.assertRaises(ValueError) as caught:
            client.get_account(options={"headers": {"X-Token": "secret\r\nX: y"}})
        self.assertNotIn("secret", str(caught.exception))

    def test_a_closed_client_says_so(self):
        s = self.server(ok({}))
        client = s.client()
        client.close()
        with self.assertRaisesRegex(ClosedError, "closed"):
            client.get_account()

    def test_a_call_during_a_close_says_so_and_is_not_repeated(self):
        s = self.server(ok({}, hang=True))
        client, errors = s.client(), []

        def call():
            try:
                client.get_account()
            except Exception as error:
                errors.append(error)
        thread = threading.Thread(target=call)
        thread.start()
        while not s.calls:
            thread.join(0.005)
        client.close()
        thread.join(10)
        self.assertEqual(([type(error) for error in errors], len(s.calls)), ([ClosedError], 1))


class OptionsOfCalls(Case):
    def test_headers_of_a_call(self):
        s = self.server(ok({}))
        with s.client(headers={"X-Team": "a"}) as client:
            client.create_link("https://example.com", options={"idempotency_key": "key-1", "headers": {"X-More": "b"}})
            client.update_link("lnk_1", title="b", options={"if_match": '"7"'})
        post, patch = (c.headers for c in s.calls)
        self.assertEqual((post["Idempotency-Key"], post["X-Team"], post["X-More"]), ("key-1", "a", "b"))
        self.assertEqual((patch["If-Match"], patch.get("Idempotency-Key")), ('"7"', None))
        self.assertTrue(post["User-Agent"].startswith("linkreel-python/"))

    def test_what_came_with_an_answer(self):
        s = self.server(refuse(503, "UNAVAILABLE"), ok(LINK, headers={
            "ETag": '"3"', "X-Request-Id": "req_9", "X-RateLimit-Limit": "600", "X-RateLimit-Remaining": "599", "X-RateLimit-Reset": "1790000000",
            "Idempotent-Replayed": "true"}))
        seen = []
        with s.client() as client:
            client.get_link("lnk_1", options={"on_response": seen.append})
        answer = seen[0]
        self.assertEqual((answer.status, answer.etag, answer.request_id, answer.attempts, answer.replayed), (200, '"3"', "req_9", 2, True))
        self.assertEqual(answer.rate_limit, (600, 599, 1790000000))
        s = self.server(refuse(404, "LINK_NOT_FOUND"))
        with s.client() as client, self.assertRaises(NotFoundError):
            client.get_link("lnk_1", options={"on_response": seen.append})
        self.assertEqual((seen[1].status, seen[1].rate_limit), (404, None))

    def test_a_record_that_has_not_changed(self):
        s = self.server(Answer(304))
        with s.client() as client, self.assertRaises(NotModified):
            client.get_link("lnk_1", options={"if_none_match": '"3"'})
        self.assertEqual(s.calls[0].headers["If-None-Match"], '"3"')

    def test_a_misspelt_option(self):
        s = self.server(ok({}))
        with s.client() as client, self.assertRaisesRegex(TypeError, "time_out"):
            client.get_account(options={"time_out": 3})


class Values(Case):
    def test_fields_are_kept_set_and_cleared(self):
        s = self.server(ok({}))
        with s.client() as client:
            client.update_link("a/b", title=None, url="https://example.com")
            client.create_link("https://example.com", tags=["a"], external_id="1", archived=True, imported_clicks=3, domain_id=None)
        self.assertEqual([c.path for c in s.calls], ["/api/v1/links/a%2Fb", "/api/v1/links"])
        self.assertEqual(s.calls[0].json, {"title": None, "url": "https://example.com"})
        self.assertEqual(s.calls[1].json, {
            "url": "https://example.com", "tags": ["a"], "externalId": "1", "archived": True, "importedClicks": 3, "domainId": None})

    def test_times(self):
        s = self.server(ok({}))
        moment = datetime(2027, 4, 1, 2, tzinfo=timezone(timedelta(hours=2)))
        with s.client() as client:
            client.create_link("https://example.com", expires_at=moment,
                               rules=[{"name": "a", "when": {"from": moment}, "url": "https://example.com/a"}])
            client.create_video(expires_at=moment)
            client.explain_link("lnk_1", at=moment)
            client.get_link_stats("lnk_1", from_=date(2027, 3, 31), to=moment)
            client.replay_webhook("whk_1", moment, "2027-04-02T00:00:00Z")
        link, video, explain, stats, replay = s.calls
        self.assertEqual((link.json["expiresAt"], link.json["rules"][0]["when"]), (1806537600000, {"from": 1806537600000}))
        self.assertEqual(video.json, {"expiresAt": 1806537600000})
        self.assertEqual(explain.path, "/api/v1/links/lnk_1/explain?at=2027-04-01T00%3A00%3A00.000Z")
        self.assertEqual(stats.path, "/api/v1/links/lnk_1/stats?from=2027-03-31&to=2027-04-01")
        self.assertEqual(replay.json, {"from": 1806537600000, "to": "2027-04-02T00:00:00Z"})

    def test_unset_fields_are_left_out_at_every_depth(self):
        s = self.server(ok({"results": []}))
        with s.client() as client:
            client.create_links([{"url": "https://example.com", "title": UNSET, "rules": [{"name": "a", "when": {"from": UNSET}}]}])
        self.assertEqual(s.calls[0].json, {"urls": [{"url": "https://example.com", "rules": [{"name": "a", "when": {}}]}]})

    def test_a_time_without_a_zone_is_refused(self):
        s = self.server(ok({}))
        with s.client() as client:
            for call in (lambda: client.create_link("https://example.com", expires_at=datetime(2027, 4, 1)),
                         lambda: client.explain_link("lnk_1", at=datetime(2027, 4, 1)),
                         lambda: client.get_link_stats("lnk_1", from_=datetime(2027, 4, 1))):
                with self.assertRaisesRegex(ValueError, "no time zone"):
                    call()
        self.assertEqual(s.calls, [])

    def test_an_id_that_would_lead_elsewhere_is_not_sent(self):
        s = self.server(Answer(204))
        with s.client() as client:
            for value in ("", ".", "..", "x/..", "..\\x"):
                with self.assertRaises(ValueError):
                    client.delete_captions("vid_1", value)
                with self.assertRaises(ValueError):
                    client.delete_link(value)
            self.assertEqual(s.calls, [])
            client.delete_captions("vid_1", "...")

    def test_any_other_path(self):
        s = self.server(ok({"new": True}), Answer(204))
        with s.client() as client:
            self.assertEqual(client.request("POST", "/api/v1/new", query={"a": ["1", "2"], "b": None, "c": True}, body={"x": 1}), {"new": True})
            self.assertIsNone(client.request("delete", "/api/v1/new"))
            for path in ("api/v1/new", "/a b", "/a?b=1", "/ä", "/a\r\nX: y"):
                with self.assertRaises(ValueError):
                    client.request("GET", path)
        self.assertEqual((s.calls[0].path, s.calls[0].json, s.calls[1].method), ("/api/v1/new?a=1&a=2&c=true", {"x": 1}, "DELETE"))

    def test_files(self):
        s = self.server(Answer(200, b"<svg/>", {"Content-Type": "image/svg+xml"}), PORTAL, Answer(200, b"PNG", {"Content-Type": "image/png"}))
        with s.client() as client:
            self.assertEqual(client.get_link_qr("lnk_1"), b"<svg/>")
            self.assertEqual(client.get_link_qr("lnk_1", format="png", size=64), b"PNG")  # not the portal's page
        self.assertEqual(s.calls[2].path, "/api/v1/links/lnk_1/qr?format=png&size=64")
        s = self.server(ok({"success": True, "language": "en"}))
        with s.client() as client:
            client.put_captions("vid_1", "en", "WEBVTT\n\nÄ")
        self.assertEqual((s.calls[0].body, s.calls[0].headers["Content-Type"]), ("WEBVTT\n\nÄ".encode(), "text/vtt"))


class Lists(Case):
    def test_pages_are_walked(self):
        s = self.server(ok({"data": [{"_id": "b"}], "hasMore": True, "nextCursor": 7}), ok({"data": [], "hasMore": True, "nextCursor": 5}),
                        ok({"data": [{"_id": "a"}], "hasMore": False, "nextCursor": None}))
        with s.client() as client:
            self.assertEqual([link["_id"] for link in client.links(tag=["x", "y"])], ["b", "a"])
        self.assertEqual([c.path for c in s.calls], ["/api/v1/links?tag=x&tag=y&limit=100" + more for more in ("", "&cursor=7", "&cursor=5")])

    def test_pages_of_videos_hide_their_header(self):
        def answer(request):
            more = {} if "cursor" in request.path else {"Link": '</x>; rel="prev", </api/v1/videos?q=a&cursor=b%2Fc>; rel="next"'}
            return ok({"data": [{"_id": "v"}]}, headers=more)
        s = self.server(answer)
        with s.client() as client:
            self.assertEqual(len(list(client.videos(q="a"))), 2)
            page = client.list_videos()
            self.assertEqual((page["nextCursor"], page["hasMore"]), ("b/c", True))
            self.assertEqual(client.list_videos(cursor="b/c")["nextCursor"], None)
        self.assertTrue(s.calls[1].path.endswith("&cursor=b%2Fc"), s.calls[1].path)

    def test_an_export_is_read_as_it_comes(self):
        lines = b'{"type":"account","data":{}}\n{"type":"link","data":{}}\n'
        s = self.server(refuse(503, "UNAVAILABLE"), Answer(200, lines, {"Content-Type": "application/jsonl"}, chunked=True))
        with s.client() as client:
            self.assertEqual([line["type"] for line in client.export_account()], ["account", "link"])
        for cut in (dict(cut=True), dict(cut=True, chunked=True)):
            s = self.server(Answer(200, lines, {"Content-Type": "application/jsonl"}, **cut))
            with s.client() as client, self.assertRaises(APIConnectionError):
                list(client.export_account())
            self.assertEqual(len(s.calls), 1)


class Connections(Case):
    def test_a_thread_keeps_its_connection(self):
        s = self.server(ok({}))
        with s.client() as client:
            for _ in range(20):
                client.get_account()
            threads = [threading.Thread(target=client.get_account) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(len({c.connection for c in s.calls[:20]}), 1)
        self.assertEqual(len({c.connection for c in s.calls}), 6)

    def test_a_kept_connection_that_the_server_closed_costs_no_attempt(self):
        s = self.server(ok({}, close=True))
        with s.client(attempts=1) as client:
            for _ in range(5):
                client.get_account()
            s.drop_connections()
            client.get_account()
        self.assertEqual((len(s.calls), s.waits), (6, []))

    def test_calls_inside_of_a_walk_have_a_connection_of_their_own(self):
        lines = b'{"type":"a"}\n' * 3
        s = self.server(lambda request: Answer(200, lines, {"Content-Type": "application/jsonl"}) if "export" in request.path else ok({}))
        with s.client() as client:
            for _ in client.export_account():
                client.get_account()
        self.assertEqual(len(s.calls), 4)

    @unittest.skipUnless(hasattr(os, "fork"), "This system has no fork")
    def test_a_forked_process_that_closes_leaves_the_connections_of_its_parent(self):
        s = self.server(ok({}))
        with s.client(attempts=1) as client:
            client.get_account()
            child = os.fork()
            if child == 0:
                client.close()
                os._exit(0)
            os.waitpid(child, 0)
            client.get_account()
        self.assertEqual(len({c.connection for c in s.calls}), 1)

    def test_many_threads_share_a_client(self):
        s = self.server(lambda request: DROP if len(s.calls) % 3 == 0 else ok({"path": request.path}))
        wrong = []

        def work(n):
            for i in range(20):
                path = "/api/v1/x/%d/%d" % (n, i)
                if client.request("GET", path) != {"path": path}:
                    wrong.append(path)
        with s.client(attempts=20) as client:
            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(wrong, [])

    def test_proxies(self):
        proxy = self.server(ok({"by": "proxy"}))
        with Client("http://linkreel.example/base", "k", proxies={"http": proxy.url.replace("http://", "http://user:p%40ss@")}) as client:
            self.assertEqual(client.get_account(), {"by": "proxy"})
        call = proxy.calls[0]
        self.assertEqual((call.path, call.headers["Host"]), ("http://linkreel.example/base/api/v1/account", "linkreel.example"))
        self.assertEqual(call.headers["Proxy-Authorization"], "Basic dXNlcjpwQHNz")
        with unittest.mock.patch.dict("os.environ", {"http_proxy": proxy.url, "no_proxy": "127.0.0.1"}):
            direct = self.server(ok({"by": "server"}))
            with direct.client() as client:
                self.assertEqual(client.get_account(), {"by": "server"})
            with Client("http://linkreel.example", "k") as client:
                self.assertEqual(client.get_account(), {"by": "proxy"})
        with Client("https://linkreel.example", "k", proxies={"https": "socks5://127.0.0.1:1"}) as client, self.assertRaises(ValueError):
            client.get_account()


if __name__ == "__main__":
    unittest.main()
