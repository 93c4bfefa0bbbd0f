"""Web server on loopback with pages set by the test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebServer:
    """Answers each path with its handler and records the requests."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[web.BaseRequest] = []
        self._handlers: dict[str, Handler] = {}

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.authority}{path}"

    def serve(self, path: str, body: bytes | str, media_type: str = "text/html", **headers: str) -> str:
        """Answer a path with this body and return its address."""
        raw = body.encode() if isinstance(body, str) else body

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(body=raw, headers={"Content-Type": media_type, **headers})

        return self.handle(path, answer)

    def redirect(self, path: str, location: str) -> str:
        """Answer a path with a redirect and return its address."""

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(status=302, headers={"Location": location})

        return self.handle(path, answer)

    def fail(self, path: str, status: int) -> str:
        """Answer a path with a status and no body, and return its address."""

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status)

        return self.handle(path, answer)

    def handle(self, path: str, handler: Handler) -> str:
        self._handlers[path] = handler
        return self.url(path)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append(request)
        handler = self._handlers.get(request.path)
        if handler is None or not isinstance(request, web.Request):
            return web.Response(status=404)
        return await handler(request)


@asynccontextmanager
async def web_server() -> AsyncIterator[WebServer]:
    """Serve while the block runs."""
    served = WebServer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", served.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    served.port = runner.addresses[0][1]
    try:
        yield served
    finally:
        await runner.cleanup()
