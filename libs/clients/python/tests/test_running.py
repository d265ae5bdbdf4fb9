"""The client and a running stack, whose stack.json LINKREEL_STACK names."""

import asyncio
import json
import os
import subprocess
import tempfile
import unittest
from datetime import datetime, timedelta, timezone

from linkreel import AsyncClient, Client, LinkreelError, NotFoundError, PreconditionFailedError, ValidationError


@unittest.skipUnless(os.environ.get("LINKREEL_STACK"), "LINKREEL_STACK names no running stack")
class Running(unittest.TestCase):
    def setUp(self):
        with open(os.environ["LINKREEL_STACK"], encoding="utf-8") as file:
            self.stack = json.load(file)
        self.client = Client(self.stack["baseUrl"], self.stack["keys"]["business"])
        self.addCleanup(self.client.close)

    def test_links(self):
        end = datetime.now(timezone.utc) + timedelta(days=1)
        made = self.client.create_link("https://example.com/python", title="Ünïcode", tags=["python"], expires_at=end)
        answers = []
        link = self.client.get_link(made["id"], options={"on_response": answers.append})
        self.assertEqual((link["title"], link["tags"], link["expiresAt"]), ("Ünïcode", ["python"], int(end.timestamp() * 1000)))
        self.client.update_link(made["id"], title=None, options={"if_match": answers[0].etag or ""})
        self.assertEqual(self.client.get_link(made["id"])["title"], "")
        with self.assertRaises(PreconditionFailedError):
            self.client.update_link(made["id"], title="late", options={"if_match": answers[0].etag or ""})
        self.assertIn(made["id"], [link["_id"] for link in self.client.links(tag="python")])
        self.assertTrue(self.client.get_link_qr(made["id"]).startswith(b"<"))
        self.assertEqual(self.client.explain_link(made["id"], at=datetime.now(timezone.utc))["status"], 302)
        self.client.delete_link(made["id"])
        with self.assertRaises(NotFoundError) as caught:
            self.client.get_link(made["id"])
        self.assertEqual(caught.exception.code, "LINK_NOT_FOUND")
        with self.assertRaises(ValidationError) as wrong:
            self.client.create_link("no address")
        self.assertEqual(wrong.exception.details[0]["field"], "url")
        self.assertEqual([r["status"] for r in self.client.create_links([{"url": "https://example.com"}, {"url": "x"}])], [201, 400])

    def test_a_video(self):
        with tempfile.TemporaryDirectory() as folder:
            clip = os.path.join(folder, "clip.mp4")
            subprocess.run(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:d=2", "-pix_fmt", "yuv420p", clip], check=True)

            async def main():
                async with AsyncClient(self.stack["baseUrl"], self.stack["keys"]["business"]) as client:
                    return await client.upload_video(clip, timeout=120)
            video = asyncio.run(main())
        self.assertEqual((video["status"], video["title"]), ("ready", "clip"))
        self.client.delete_video(video["id"])

    def test_an_export_and_the_operators_calls(self):
        with Client(self.stack["adminUrl"], self.stack["adminToken"]) as operator:
            account = operator.admin_create_account("Python", "business")
            self.assertIn(account["id"], [a["id"] for a in operator.admin_accounts(q="Python")])
            key = operator.admin_create_key(account["id"], "all", scopes=[
                "links:read", "videos:read", "domains:read", "keys:read", "events:read", "webhooks:read", "members:read"])
        with Client(self.stack["baseUrl"], key["key"]) as client:
            self.assertEqual(next(client.export_account())["type"], "account")


@unittest.skipUnless(os.environ.get("LINKREEL_HOSTILE"), "LINKREEL_HOSTILE is no address behind a bad network")
class BehindABadNetwork(unittest.TestCase):
    def test_every_error_has_a_type_and_no_key(self):
        key, failed = os.environ["LINKREEL_API_KEY"], set()
        with Client(os.environ["LINKREEL_HOSTILE"], key, attempts=1) as client:
            for i in range(60):
                for call in (lambda: client.list_links(slug="s%d" % i), lambda: client.get_link("lnk_%d" % i),
                             lambda: client.delete_link("lnk_%d" % i), lambda: list(client.videos(q="q%d" % i)),
                             lambda: client.get_link_qr("lnk_%d" % i)):
                    try:
                        call()
                    except LinkreelError as error:
                        failed.add(type(error).__name__)
                        self.assertNotIn(key, str(error))
        self.assertLessEqual({"APIConnectionError", "NotFoundError", "ServerError", "UnexpectedAnswerError"}, failed)


if __name__ == "__main__":
    unittest.main()
