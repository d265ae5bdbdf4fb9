"""A server that answers as the network may: not, late, by half, twice, or something else."""

import json
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from linkreel import AsyncClient, Client


class Answer:
    """An answer and what goes wrong with it."""

    def __init__(self, status=200, body=b"", headers=None, *, cut=False, chunked=False, drip=False, hang=False, close=False):
        self.status, self.body, self.headers = status, body, headers or {}
        self.cut, self.chunked, self.drip, self.hang, self.close = cut, chunked, drip, hang, close


DROP = object()  # the connection closes without an answer


def ok(value, status=200, **more):
    return Answer(status, json.dumps(value).encode(), {"Content-Type": "application/json", **more.pop("headers", {})}, **more)


def refuse(status, code, headers=None, **more):
    error = {"code": code, "message": "Not like this.", "requestId": "req_1", "docUrl": "/docs/guides/errors#" + code.lower(), **more}
    return Answer(status, json.dumps({"error": error}).encode(), {"Content-Type": "application/json", **(headers or {})})


class Request:
    def __init__(self, method, path, headers, body, connection):
        self.method, self.path, self.headers, self.body, self.connection = method, path, headers, body, connection

    @property
    def json(self):
        return json.loads(self.body) if self.body else None


class Server:
    """Gives its answers one after the other; the last one repeats. An answer may be a function of the request."""

    def __init__(self, *answers, tls=None):
        self.answers, self.calls, self.waits = list(answers), [], []
        self.stopped, self.lock = threading.Event(), threading.Lock()
        self.connections = set()
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                with script.lock:
                    script.connections.add(self.connection)

            def finish(self):
                with script.lock:
                    script.connections.discard(self.connection)
                try:
                    super().finish()
                except OSError:
                    pass

            def any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with script.lock:
                    script.calls.append(Request(self.command, self.path, dict(self.headers), body, self.client_address))
                    answer = script.answers[min(len(script.calls), len(script.answers)) - 1]
                if callable(answer):
                    answer = answer(script.calls[-1])
                try:
                    script.give(self, answer)
                except OSError:
                    self.close_connection = True  # the client has left

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = any

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None  # of a client that does not trust us
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = ("https://localhost:%d" if tls else "http://127.0.0.1:%d") % self.server.server_address[1]

    def give(self, handler, answer):
        if answer is DROP:
            handler.close_connection = True
            return
        if answer.hang:
            self.stopped.wait()
        handler.send_response(answer.status)
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        body = answer.body
        if answer.chunked:
            handler.send_header("Transfer-Encoding", "chunked")
            body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:5], body[5:]) if part) + b"0\r\n\r\n"
        elif answer.status not in (204, 304):
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if answer.drip:
            for i in range(len(body)):
                handler.wfile.write(body[i:i + 1])
                self.stopped.wait(0.02)
            return
        handler.wfile.write(body[:len(body) // 2] if answer.cut else body)
        handler.wfile.flush()
        if answer.cut or answer.close:
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

    def client(self, key="lr_live_test", **more):
        client = Client(self.url, key, **more)
        client._sleep = lambda seconds, cancel: self.waits.append(seconds)
        return client

    def async_client(self, **more):
        client = AsyncClient(self.url, "lr_live_test", **more)
        client._client._sleep = lambda seconds, cancel: self.waits.append(seconds)
        return client

    def drop_connections(self):
        """Close every connection, as a server does that stops."""
        with self.lock:
            for connection in self.connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def close(self):
        self.stopped.set()
        self.server.shutdown()
        self.server.server_close()
        self.drop_connections()
