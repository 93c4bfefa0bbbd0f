"""The ASGI application: what happens around every route, from the host's name to the last byte."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from time import perf_counter

from msgspec import Struct, structs

from talaria.api.failed_keys import FailedKeys
from talaria.api.figures import Figures
from talaria.api.hosts import Hosts
from talaria.api.http import Receive, Reply, Request, Scope, Send, Stream, problem_reply
from talaria.api.idempotency import HEADER, KeptReply, Repetitions
from talaria.api.keys import Keyring, UnknownKey
from talaria.api.limits import Limits
from talaria.api.problems import ClientGone, Problem, ServerEnds, problem_of, server_problem
from talaria.api.router import Route, Router
from talaria.core.errors import StoreError, TalariaError
from talaria.core.ids import new_id
from talaria.sessions.api_keys import KeyScope
from talaria.sessions.company import accompanied

_BEAT = b": still here\n\n"

log = logging.getLogger(__name__)


class Manner(Struct, frozen=True, kw_only=True):
    """How clients are served: times in seconds, the size of a body in bytes.

    A client that takes nothing for ``stall`` seconds counts as gone.
    """

    body_limit: int = 20_000_000
    heartbeat: float = 15.0
    stall: float = 60.0


class Application:
    """Answers every request with what its route says, or with an error of OpenAI's shape."""

    def __init__(
        self,
        router: Router,
        keyring: Keyring,
        repetitions: Repetitions,
        hosts: Hosts,
        limits: Limits,
        figures: Figures,
        manner: Manner,
    ) -> None:
        self._router = router
        self._keyring = keyring
        self._repetitions = repetitions
        self._hosts = hosts
        self._limits = limits
        self._figures = figures
        self._manner = manner
        self._failed_keys = FailedKeys()
        self.ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        request, began = Request(scope, receive), perf_counter()
        exchange = _Exchange(send, self._hosts.reply_headers(request.headers.get("origin")), self._manner)
        route: Route | None = None
        try:
            self._hosts.check(request.headers)
            if request.method == "OPTIONS":
                await exchange.write(self._preflight(request))
                return
            route, request.parts = self._router.find(request.method, request.path)
            await self._serve(request, route, exchange)
        except ClientGone:
            exchange.status = exchange.status or 499
        except TalariaError as error:
            await exchange.write(problem_reply(problem_of(error)))
        except Exception:  # a bug ends the request, not the server
            log.exception("%s %s failed", request.method, route.path if route else "")
            await exchange.write(problem_reply(server_problem(TalariaError.public)))
        finally:
            self._figures.count(route.path if route else "", exchange.status, perf_counter() - began)

    async def _serve(self, request: Request, route: Route, exchange: "_Exchange") -> None:
        if self.ending:
            raise ServerEnds
        if route.scope is None:  # no key, so no limit for it, and no body: `/health` always answers
            await exchange.give(await route.handler(request), request)
            return
        authorization = request.headers.get("authorization", "")
        try:
            request.caller = await self._keyring.caller(authorization, route.scope)
        except UnknownKey as error:
            raise (await self._failed_keys.refuse(error, request.address)) if authorization else error from error
        if request.caller.name:
            exchange.welcome = partial(self._is_welcome, authorization, route.scope)
        self._limits.count(request.caller.name)
        with self._limits.held(request.caller.name):
            await request.load(self._manner.body_limit, self._manner.stall)
            key = request.headers.get(HEADER) if route.repeatable else None
            if key is not None:
                await self._once(request, route, exchange, key)
            else:
                await self._answer(request, route, exchange)

    async def _is_welcome(self, authorization: str, scope: KeyScope) -> None:
        """Raise a `Problem` for a key that was revoked, as far as that can be known."""
        with suppress(StoreError):
            await self._keyring.caller(authorization, scope)

    async def _answer(self, request: Request, route: Route, exchange: "_Exchange") -> None:
        """Answer as long as somebody listens: what the handler does is cancelled when they do not."""
        if route.method == "GET" or route.lasting:
            await exchange.give(await route.handler(request), request)
        else:
            await accompanied(self._handled(request, route, exchange), exchange.attend(request))

    async def _handled(self, request: Request, route: Route, exchange: "_Exchange") -> None:
        reply = await route.handler(request)
        if reply.stream is None:
            await exchange.write(reply)
        else:
            await exchange.pour(reply, reply.stream, request)

    async def _once(self, request: Request, route: Route, exchange: "_Exchange", key: str) -> None:
        """Answer a request that may come again: whoever asked may be gone, and come back for the answer."""
        found = await self._repetitions.begin(key, request.caller.name, request.method, request.path, request.body)
        if isinstance(found, KeptReply):
            headers = {**found.headers, "idempotent-replayed": "true"}
            await exchange.write(_reply(structs.replace(found, headers=headers)))
            return
        try:
            kept = await accompanied(self._first(request, route, exchange), self._repetitions.hold(found))
        except TalariaError as error:
            kept = KeptReply.of(problem_reply(problem_of(error)))
        except Exception:
            await self._repetitions.end(found, KeptReply.of(problem_reply(server_problem(TalariaError.public))))
            raise
        await self._repetitions.end(found, kept)
        await exchange.write(_reply(kept))

    async def _first(self, request: Request, route: Route, exchange: "_Exchange") -> KeptReply:
        reply = await route.handler(request)
        if reply.stream is None:
            return KeptReply.of(reply)
        body = await exchange.give(reply, request, to_the_end=True)
        if not reply.stream.is_whole:  # it is no answer, and the request may be made again
            raise ServerEnds
        return KeptReply(reply.status, reply.content_type, reply.headers, body)

    def _preflight(self, request: Request) -> Reply:
        methods = ", ".join(self._router.methods(request.path))
        headers = self._hosts.preflight_headers(request.headers, methods)
        return Reply(status=HTTPStatus.NO_CONTENT, headers={"allow": methods, **headers})


class _Exchange:
    """What goes back to one client."""

    def __init__(self, send: Send, headers: Mapping[str, str], manner: Manner) -> None:
        self.status = 0
        self._send = send
        self._headers = headers
        self._manner = manner
        self._sent = 0
        self._pouring = False
        self.welcome: Callable[[], Awaitable[None]] | None = None

    async def write(self, reply: Reply) -> None:
        """Send a reply that is there as a whole, unless another has begun."""
        if self.status:
            return
        await self._start(reply, ("content-length", str(len(reply.body))))
        await self._body(reply.body, more=False)

    async def give(self, reply: Reply, request: Request, *, to_the_end: bool = False) -> bytes:
        """Send a reply while somebody listens; with ``to_the_end`` all of a stream is taken in and returned anyhow."""
        if reply.stream is None:
            await self.write(reply)
            return reply.body
        whole: list[bytes] = []
        pouring = self.pour(reply, reply.stream, request, whole if to_the_end else None)
        await accompanied(pouring, self.attend(request, to_the_end=to_the_end))
        return b"".join(whole)

    async def pour(self, reply: Reply, stream: Stream, request: Request, whole: list[bytes] | None = None) -> None:
        """Send a reply as it comes; what is to be ``whole`` gets all of it, whoever listens."""
        try:
            await self._start(reply)
            if request.method == "HEAD":  # nobody reads what would come
                await self._body(b"", more=False)
            else:
                await self._pieces(stream, whole)
        finally:
            await stream.close()

    async def attend(self, request: Request, *, to_the_end: bool = False) -> None:
        """Notice that the client is gone, or its key revoked, and let proxies see that something goes on."""
        try:
            await self._attend(request)
        except (ClientGone, Problem):
            if not to_the_end:
                raise

    async def _pieces(self, stream: Stream, whole: list[bytes] | None) -> None:
        self._pouring = listening = True
        async for piece in stream:
            if whole is not None:
                whole.append(piece)
            try:
                if listening:
                    await self._body(piece, more=True)
            except ClientGone:
                if whole is None:
                    raise
                listening = False
        self._pouring = False
        if listening:
            await self._body(b"", more=False)

    async def _attend(self, request: Request) -> None:
        seen = self._sent
        while True:
            try:
                async with asyncio.timeout(self._manner.heartbeat):
                    await request.gone()
            except TimeoutError:
                if self.welcome is not None:
                    await self.welcome()
                if self._pouring and seen == self._sent:
                    await self._body(_BEAT, more=True)
                seen = self._sent

    async def _start(self, reply: Reply, *more: tuple[str, str]) -> None:
        self.status = reply.status
        headers = {
            "content-type": reply.content_type,
            "x-request-id": f"req_{new_id()}",
            **self._headers,
            **reply.headers,
        }
        if reply.status == HTTPStatus.NO_CONTENT:
            headers.pop("content-type")
            more = ()
        pairs = [*headers.items(), *more]
        encoded = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in pairs]
        await self._send({"type": "http.response.start", "status": reply.status, "headers": encoded})

    async def _body(self, piece: bytes, *, more: bool) -> None:
        self._sent += 1
        try:
            async with asyncio.timeout(self._manner.stall):
                await self._send({"type": "http.response.body", "body": piece, "more_body": more})
        except TimeoutError as error:
            raise ClientGone("nothing was taken for too long") from error


def _reply(kept: KeptReply) -> Reply:
    return Reply(status=kept.status, body=kept.body, content_type=kept.content_type, headers=kept.headers)
