"""A tour of the client: links, bulk, a video, a webhook and the feed of events.

    LINKREEL_BASE_URL=http://localhost:8080 LINKREEL_API_KEY=lr_live_… python3 tour.py clip.mp4

The webhook is received on this machine, which `make run` allows.
"""

import os
import queue
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from linkreel import Client, LinkreelError, NotFoundError, WebhookError, receive_webhook, types


def receiver(secrets: "list[str]", messages: "queue.Queue[str]") -> HTTPServer:
    """A receiver of webhooks on a free port."""
    class Hooks(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(max(0, min(int(self.headers["Content-Length"]), 1 << 20)))
            try:
                messages.put(receive_webhook(secrets, self.headers, body).type)
                self.send_response(204)
            except WebhookError as refused:
                print("refused:", refused.reason)
                self.send_response(401)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass
    server = HTTPServer(("127.0.0.1", 0), Hooks)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def tour(client: Client, clip: str) -> None:
    place = client.follow_events().cursor                      # what follows will be in the feed
    link = client.create_link("https://example.com/spring", title="Spring", tags=["tour"])
    print("created", link["shortUrl"], "found", [found["slug"] for found in client.links(q="spring", tag="tour")])
    client.update_link(link["id"], title="Summer")
    client.delete_link(link["id"])
    try:
        client.get_link(link["id"])
    except NotFoundError as gone:
        print("deleted:", gone.code)

    items: "list[types.LinkCreate]" = [{"url": "https://example.com/%d" % i, "tags": ["bulk"]} for i in range(1000)]
    for i in range(0, 1000, 100):
        items[i]["url"] = "no address"
    results = client.create_links(items)
    print("bulk: %d created, %d refused" % (sum("data" in r for r in results), sum("error" in r for r in results)))
    ids = [r["data"]["id"] for r in results if r["status"] == 201]
    print("listed:", sorted(ids) == sorted(found["_id"] for found in client.links(tag="bulk")))

    secrets: "list[str]" = []
    messages: "queue.Queue[str]" = queue.Queue()
    with receiver(secrets, messages) as server:
        hook = client.create_webhook("http://127.0.0.1:%d/hooks" % server.server_port, ["video.ready"])
        secrets.append(hook["secret"])
        video = client.upload_video(clip, title="Tour", progress=lambda sent, size: print("sent %d of %d" % (sent, size)), timeout=300)
        print("plays at", video["shareUrl"], "webhook:", messages.get(timeout=60))
        client.delete_webhook(hook["id"])
        server.shutdown()

    feed = client.follow_events(after=place, type=["link.created"])
    seen = [next(feed)["object"] for _ in range(500)]
    feed = client.follow_events(after=feed.cursor, type=["link.created"])     # as a program that was started again
    seen += [next(feed)["object"] for _ in range(len(ids) + 1 - 500)]
    print("feed: each link once:", sorted(seen) == sorted([link["id"], *ids]))
    print("cleared:", {r["status"] for r in client.delete_links(ids)})
    client.delete_video(video["id"])


if __name__ == "__main__":
    try:
        with Client(os.environ["LINKREEL_BASE_URL"], os.environ["LINKREEL_API_KEY"]) as linkreel:
            tour(linkreel, sys.argv[1])
    except LinkreelError as error:
        sys.exit("%s: %s" % (type(error).__name__, error))
