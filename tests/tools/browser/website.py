"""A website on loopback for tests of the browser: pages by path, forms that are recorded, slow and endless replies."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Website:
    """Pages by path; ``posts`` are the bodies that were sent to it, ``seen`` the paths that were requested."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.redirects: dict[str, str] = {}
        self.posts: list[str] = []
        self.seen: list[str] = []
        self.ending = threading.Event()
        self.port = 0

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.host}{path}"

    def page(self, path: str, body: str) -> str:
        """Serve a page, and return its address."""
        self.pages[path] = f"<!doctype html><title>{path}</title>{body}"
        return self.url(path)


class _Handler(BaseHTTPRequestHandler):
    server: "_Server"

    def do_GET(self) -> None:
        site = self.server.site
        site.seen.append(self.path)
        if self.path in site.redirects:
            self._send(b"", "text/html", status=302, location=site.redirects[self.path])
        elif self.path == "/endless":
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Endless</title><h1>The beginning</h1>" + b" " * 2048)
            site.ending.wait()
        elif self.path == "/silent":
            site.ending.wait()
        elif self.path.startswith("/file/"):
            self._send(b"col1,col2\n1,2\n", "text/csv", content_disposition='attachment; filename="report.csv"')
        else:
            body = site.pages.get(self.path.partition("?")[0], "<title>Missing</title><p>Not found")
            self._send(body.encode(), "text/html; charset=utf-8")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.site.posts.append(body.decode(errors="replace"))
        self._send(b"<!doctype html><title>Received</title><h1>Thank you</h1>", "text/html")

    def _send(self, body: bytes, content_type: str, *, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, site: Website) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.site = site
        site.port = self.server_port

    def handle_error(self, *_: Any) -> None:  # a browser closes connections at any time
        pass


@contextmanager
def serving() -> Iterator[Website]:
    """Serve a website in threads of this process."""
    site = Website()
    with _Server(site) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield site
        finally:
            site.ending.set()
            server.shutdown()
            thread.join()
