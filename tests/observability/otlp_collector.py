"""Trace collector for tests: it decodes the spans it receives."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from talaria.observability.otlp_exporter import OtlpSpan, OtlpTraces

Handler = Callable[[web.Request], Awaitable[web.Response]]


class Collector:
    """Server that decodes OTLP; it returns ``answers`` first, then accepts every request."""

    def __init__(self, *answers: int | Handler) -> None:
        self.bodies: list[bytes] = []
        self.requests: list[web.Request] = []
        self.url = ""
        self._answers = list(answers)

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        self.bodies.append(await request.read())
        answer = self._answers.pop(0) if self._answers else 200
        if not isinstance(answer, int):
            return await answer(request)
        return web.Response(status=answer, headers={"Retry-After": "86400"}, text="{}")

    @property
    def spans(self) -> list[OtlpSpan]:
        return [
            span
            for body in self.bodies
            for resource in msgspec.json.decode(body, type=OtlpTraces).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


@asynccontextmanager
async def listening(collector: Collector) -> AsyncIterator[Collector]:
    application = web.Application()
    application.router.add_post("/v1/traces", collector.handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        await runner.cleanup()
