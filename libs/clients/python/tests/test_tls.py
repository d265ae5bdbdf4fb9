"""Calls over TLS, and through a proxy that tunnels them."""

import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest

from linkreel import APIConnectionError, Cancel, Cancelled, Client

from .hostile import Server, ok
from .test_calls import LINK, Case


class Tunnel:
    """A proxy that only tunnels. It notes the first line of each request."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://me:pass@127.0.0.1:%d" % self.listener.getsockname()[1]
        self.asked = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.tunnel, args=(client,), daemon=True).start()

    def tunnel(self, client):
        head = b""
        while b"\r\n\r\n" not in head:
            head += client.recv(1)
        self.asked.append(head.decode().lower())
        host, _, port = head.split()[1].decode().rpartition(":")
        with client, socket.create_connection((host, int(port))) as server:
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=self.copy, args=(server, client), daemon=True)
            back.start()
            self.copy(client, server)
            back.join()

    @staticmethod
    def copy(source, target):
        try:
            while part := source.recv(1 << 16):
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()


@unittest.skipUnless(shutil.which("openssl"), "openssl is not on this machine")
class TLS(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.pair = [os.path.join(cls.folder.name, name) for name in ("cert.pem", "key.pem")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-out", cls.pair[0], "-keyout", cls.pair[1]],
                       check=True, capture_output=True)
        cls.trust = ssl.create_default_context(cafile=cls.pair[0])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def server(self, *answers):
        server = Server(*answers, tls=self.pair)
        self.addCleanup(server.close)
        return server

    def test_a_connection_is_kept(self):
        s = self.server(ok(LINK))
        with Client(s.url, "k", ssl_context=self.trust) as client:
            for _ in range(3):
                self.assertEqual(client.get_link("lnk_1"), LINK)
        self.assertEqual(len({c.connection for c in s.calls}), 1)

    def test_an_unknown_certificate_is_refused(self):
        s = self.server(ok(LINK))
        with s.client(attempts=1) as client, self.assertRaisesRegex(APIConnectionError, "certificate is not valid"):
            client.get_link("lnk_1")
        self.assertEqual(s.calls, [])

    def test_a_cancel_ends_a_call(self):
        s, cancel, errors = self.server(ok(LINK, hang=True)), Cancel(), []

        def call():
            try:
                client.get_link("lnk_1", options={"cancel": cancel})
            except Exception as error:
                errors.append(error)
        with Client(s.url, "k", ssl_context=self.trust) as client:
            thread = threading.Thread(target=call)
            thread.start()
            while not s.calls:
                thread.join(0.005)
            cancel.cancel()
            thread.join(10)
        self.assertIsInstance(errors[0], Cancelled)

    def test_a_proxy_sees_only_the_host(self):
        s, proxy = self.server(ok(LINK)), Tunnel()
        self.addCleanup(proxy.close)
        with Client(s.url, "lr_live_secret", ssl_context=self.trust, proxies={"https": proxy.url}) as client:
            for _ in range(3):
                self.assertEqual(client.get_link("lnk_1"), LINK)
        self.assertEqual(len(proxy.asked), 1)
        self.assertIn("connect localhost:", proxy.asked[0])
        self.assertIn("proxy-authorization: basic bwu6cgfzcw==", proxy.asked[0])
        self.assertNotIn("secret", proxy.asked[0])


if __name__ == "__main__":
    unittest.main()
