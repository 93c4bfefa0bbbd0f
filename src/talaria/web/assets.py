"""Static files of the web app: served from memory under a digest of all of them, compressed on first use."""

import gzip
import hashlib
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from talaria.http.errors import make_not_found
from talaria.http.routing import Reply, Route
from talaria.web.front_door import WebRequest

STATIC = Path(__file__).parent / "static"
_ENTRY = "js/main.js"
_WORKER = "sw.js"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_REGISTRY = "js/pages/registry.js"
_PAGE_PATH = re.compile(r'^    path: "(/[a-z-]+)",$', re.MULTILINE)
_COMMENT = re.compile(rb"^ *(?:/\*\*(?:(?!\*/).)*\*/|//[^\n]*)$", re.MULTILINE | re.DOTALL)  # on lines of its own
_IMPORT = re.compile(r"""^(?:import|export)\s(?:[^;]*?from\s+)?["'](\.[^"']+)["'];""", re.MULTILINE)
_CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src 'self' blob:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types service-worker",
    )
)
SECURITY_HEADERS = {
    "content-security-policy": _CONTENT_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(self)",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class _Asset:
    def __init__(self, content_type: str, body: bytes) -> None:
        self.content_type = content_type
        self.body = body

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, 9, mtime=0)


class Assets:
    """All static files; ``digest`` changes with any of them, so that browsers may cache them permanently.

    ``page_paths`` are the addresses of all pages; addresses below them show the app too.
    """

    def __init__(self, folder: Path = STATIC) -> None:
        self._files = {path: _read(folder / path) for path in sorted(_list_files(folder))}
        whole = hashlib.sha256()
        for path, asset in self._files.items():
            whole.update(f"{path}\0{len(asset.body)}\0".encode() + asset.body)
        self.digest = whole.hexdigest()[:16]
        self.page_paths = ("/", "/c", *_PAGE_PATH.findall(self._files[_REGISTRY].body.decode()))
        self._page = self._make_page((folder / "index.html").read_text())
        self._worker = self._make_worker()

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of the page and its files."""
        pages = tuple(
            Route(method="GET", path=path, handler=self._show_page, summary="The web app", scope=None, tag="web")
            for root in self.page_paths
            for path in ((root,) if root == "/" else (root, f"{root}/{{rest*}}"))
        )
        files = Route(method="GET", path="/assets/{digest}/{path*}", handler=self._show_file,
                      summary="A file of the web app", scope=None, tag="web")  # fmt: skip
        worker = Route(method="GET", path="/sw.js", handler=self._show_worker,
                       summary="The service worker of the web app", scope=None, tag="web")  # fmt: skip
        return (*pages, files, worker)

    def paths(self) -> tuple[str, ...]:
        """Return the paths of all files."""
        return tuple(self._files)

    def body(self, path: str) -> bytes:
        """Return a file as it is sent."""
        return self._files[path].body

    def compressed_size(self, path: str) -> int:
        """Return how many bytes of a file are sent."""
        return len(self._files[path].compressed)

    def graph(self) -> tuple[str, ...]:
        """Return the modules that are loaded at the start, the entry first."""
        found: dict[str, None] = {}
        waiting = [_ENTRY]
        while waiting:
            path = waiting.pop(0)
            if path not in found:
                found[path] = None
                waiting += _imports_of(path, self._files[path].body.decode())
        return tuple(found)

    def _make_page(self, template: str) -> bytes:
        base = f"/assets/{self.digest}"
        links = [f'<link rel="modulepreload" href="{base}/{path}">' for path in self.graph()[1:]]
        return template.replace("{{assets}}", base).replace("{{preload}}", "\n    ".join(links)).encode()

    def _make_worker(self) -> bytes:
        """Return the service worker, with everything that it stores."""
        files = " ".join(path for path in self._files if path != _WORKER and not path.endswith(".txt"))
        text = self._files[_WORKER].body.decode()
        return text.replace("{{assets}}", f"/assets/{self.digest}").replace("{{files}}", files).encode()

    async def _show_worker(self, request: WebRequest) -> Reply:
        headers = {"cache-control": "no-cache"}
        return Reply(body=self._worker, content_type=_TYPES[".js"], headers=headers)

    async def _show_page(self, request: WebRequest) -> Reply:
        headers = {"cache-control": "no-cache", "vary": "cookie"}
        return Reply(body=self._page, content_type="text/html; charset=utf-8", headers=headers)

    async def _show_file(self, request: WebRequest) -> Reply:
        asset = self._files.get(request.parts["path"])
        if asset is None or request.parts["digest"] != self.digest:
            raise make_not_found("There is no such file. Reload the page.", code="unknown_file")
        headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Reply(body=asset.compressed, content_type=asset.content_type, headers=headers)
        return Reply(body=asset.body, content_type=asset.content_type, headers=headers)


def _list_files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.suffix in _TYPES and not path.name.endswith(".d.ts"):
            yield path.relative_to(folder).as_posix()


def _read(path: Path) -> _Asset:
    body = path.read_bytes()
    if path.suffix == ".js" and path.parent.name != "vendor":
        body = _COMMENT.sub(lambda found: b"\n" * found[0].count(b"\n"), body)  # line numbers stay
    return _Asset(_TYPES[path.suffix], body)


def _imports_of(path: str, text: str) -> list[str]:
    """Return the modules that a module imports at once, as paths below the folder."""
    folder = Path(path).parent
    found = []
    for match in _IMPORT.finditer(text):
        parts: list[str] = []
        for part in (folder / match[1]).parts:
            if part == "..":
                parts.pop()
            else:
                parts.append(part)
        found.append("/".join(parts))
    return found
