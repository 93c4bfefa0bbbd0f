"""Real sources of skills on loopback: git over its own protocol and over HTTP, and files over HTTP."""

import os
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HEAD = "---\nname: {name}\ndescription: {about}\n---\n\n{body}\n"


def write_skill(folder: Path, name: str, body: str = "Do it.", about: str = "When asked.") -> Path:
    """Write a skill into a folder of its name."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / name / "SKILL.md").write_text(HEAD.format(name=name, about=about, body=body))
    return folder / name


class Repository:
    """A git repository with skills, and a bare copy of it that is served."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.bare = folder / "served" / "skills.git"
        self.work.mkdir(parents=True)
        self.bare.parent.mkdir()
        self._git("init", "-q", "-b", "main", ".")

    def commit(self) -> str:
        """Commit everything, push it, and return the commit."""
        self._git("add", "-A")
        self._git("-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "change")
        if not self.bare.exists():
            self._git("clone", "-q", "--bare", ".", str(self.bare))
        self._git("push", "-q", str(self.bare), "HEAD:main")
        subprocess.run(["git", "update-server-info"], cwd=self.bare, check=True)
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=self.work, check=True, capture_output=True, text=True).stdout


@contextmanager
def serve_git_daemon(repository: Repository) -> Iterator[str]:
    """Serve a repository with `git daemon`, one process per connection, and yield its address."""
    command = ["git", "daemon", "--inetd", "--export-all", f"--base-path={repository.bare.parent}"]

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            subprocess.run(command, stdin=self.request, stdout=self.request, check=False)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as server, _running(server):
        yield f"git://127.0.0.1:{server.server_address[1]}/skills.git"


class _HttpBackend(BaseHTTPRequestHandler):
    """Runs `git http-backend` for each request."""

    def __init__(self, root: Path, *arguments: object) -> None:
        self._root = root
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def _answer(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        variables = {
            "GIT_PROJECT_ROOT": str(self._root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
            "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)), "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""), "PATH": os.defpath,
        }  # fmt: skip
        done = subprocess.run(["git", "http-backend"], input=body, env=variables, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        """Stay silent."""


@contextmanager
def serve_git_http(repository: Repository) -> Iterator[str]:
    """Serve a repository with `git http-backend`, and yield its address."""
    handler = partial(_HttpBackend, repository.bare.parent)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, _running(server):
        yield f"http://127.0.0.1:{server.server_port}/skills.git"


class _SilentFiles(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Stay silent."""


@contextmanager
def serve_files(folder: Path, files: Mapping[str, bytes] | None = None) -> Iterator[str]:
    """Serve a folder over HTTP, with these files in it, and yield its address."""
    for name, content in (files or {}).items():
        (folder / name).write_bytes(content)
    handler = partial(_SilentFiles, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, _running(server):
        yield f"http://127.0.0.1:{server.server_port}"


@contextmanager
def _running(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
