"""Routes of signed-in browsers: signing in and out, and push notifications."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from talaria.access.browsers import (
    PushSubscription,
    delete_subscription,
    read_browsers,
    read_subscription,
    revoke_browser,
    sign_in,
    write_subscription,
)
from talaria.commands.command import Command
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import NotFound
from talaria.http.errors import Problem, make_conflict
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.web.front_door import (
    ANYONE,
    USER,
    SignInLimiter,
    WebCaller,
    WebRequest,
    describe_browser,
    make_cookie,
)
from talaria.web.notifications import PushSender, WebNotification
from talaria.web.wire import BrowserView, CommandInfo, Done, LoginRequest, MeView, PushRequest, PushView

_TAG = "web"
_WRONG_CODE = "This code is wrong, used or expired. Run `talaria web pair` for a new one."
_MISSING = "Push notifications need the extra `push`: install `talaria-agent[push]`, and restart the server."


class SignInRoutes:
    """Signing in with a one-use code, and the browsers that have done so.

    ``list_commands`` returns the slash commands of a caller, ``default_model`` the name of the configured model,
    ``has_voice`` whether recordings can be transcribed.
    """

    def __init__(
        self,
        store: Store,
        version: str,
        digest: str,
        list_commands: Callable[[WebCaller], tuple[Command, ...]],
        default_model: Callable[[], Awaitable[str]],
        has_voice: Callable[[], bool],
    ) -> None:
        self._has_voice = has_voice
        self._store = store
        self._version = version
        self._digest = digest
        self._list_commands = list_commands
        self._default_model = default_model
        self._limiter = SignInLimiter()

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="POST", path="/web/login", handler=self._sign_in, summary="Sign in with a one-use code",
                  scope=ANYONE, takes=LoginRequest, reply_type=Done, tag=_TAG),
            Route(method="POST", path="/web/logout", handler=self._sign_out, summary="Sign this browser out",
                  scope=USER, reply_type=Done, tag=_TAG),
            Route(method="GET", path="/web/me", handler=self._show_me, summary="Show who is signed in",
                  scope=USER, reply_type=MeView, tag=_TAG),
            Route(method="GET", path="/web/browsers", handler=self._list, summary="List signed-in browsers",
                  scope=USER, reply_type=list[BrowserView], tag=_TAG),
            Route(method="DELETE", path="/web/browsers/{browser_id}", handler=self._revoke,
                  summary="Sign a browser out", scope=USER, reply_type=Done, tag=_TAG),
        )  # fmt: skip

    async def _sign_in(self, request: WebRequest) -> Reply:
        self._limiter.count(request.address)
        code, label = request.read(LoginRequest).code, describe_browser(request.headers.get("user-agent", ""))
        found = await self._store.write(lambda tx: sign_in(tx, code, label))
        if found is None:
            raise Problem(_WRONG_CODE, HTTPStatus.FORBIDDEN, code="wrong_code")
        return make_json_reply(Done(), headers={"set-cookie": make_cookie(request, found[1])})

    async def _sign_out(self, request: WebRequest) -> Reply:
        await self._store.write(lambda tx: revoke_browser(tx, request.caller.name))
        return make_json_reply(Done(), headers={"set-cookie": make_cookie(request, "")})

    async def _show_me(self, request: WebRequest) -> Reply:
        caller = request.caller
        me = MeView(
            name=caller.person,
            owner=caller.is_owner,
            browser=caller.name,
            model=await self._default_model(),
            version=self._version,
            digest=self._digest,
            voice=self._has_voice(),
            commands=tuple(
                CommandInfo(one.name, one.usage, one.help, one.category) for one in self._list_commands(caller)
            ),
        )
        return make_json_reply(me)

    async def _list(self, request: WebRequest) -> Reply:
        caller = request.caller
        known = await self._store.read(read_browsers)
        views = [
            BrowserView(
                id=one.id,
                label=one.label,
                person=one.person,
                created_at=one.created_at,
                seen_at=one.seen_at,
                current=one.id == caller.name,
            )
            for one in sorted(known.values(), key=lambda one: one.seen_at, reverse=True)
            if caller.is_owner or one.person == caller.person
        ]
        return make_json_reply(views)

    async def _revoke(self, request: WebRequest) -> Reply:
        browser_id = request.parts["browser_id"]
        await self._store.write(lambda tx: _revoke_visible(tx, browser_id, request.caller))
        return make_json_reply(Done())


def _revoke_visible(tx: Transaction, browser_id: str, caller: WebCaller) -> None:
    """Sign a browser out; guests see and revoke only their own ones."""
    own = caller.is_owner or any(
        one.id == browser_id and one.person == caller.person for one in read_browsers(tx).values()
    )
    if not own:
        raise NotFound(f"There is no signed-in browser `{browser_id[:32]}`.")
    revoke_browser(tx, browser_id)


class PushRoutes:
    """Subscribe, change what is sent, try it, and unsubscribe; ``sender`` is ``None`` without its library."""

    def __init__(self, store: Store, sender: PushSender | None) -> None:
        self._store = store
        self._sender = sender

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/push", handler=self._show, summary="Show push notifications",
                  scope=USER, reply_type=PushView, tag=_TAG),
            Route(method="PUT", path="/web/push", handler=self._subscribe, summary="Subscribe to push notifications",
                  scope=USER, takes=PushRequest, reply_type=PushView, tag=_TAG),
            Route(method="DELETE", path="/web/push", handler=self._unsubscribe,
                  summary="Unsubscribe from push notifications", scope=USER, reply_type=PushView, tag=_TAG),
            Route(method="POST", path="/web/push/test", handler=self._try, summary="Send a push notification",
                  scope=USER, reply_type=Done, tag=_TAG),
        )  # fmt: skip

    async def _show(self, request: WebRequest) -> Reply:
        name = request.caller.name
        known = await self._store.read(lambda tx: read_subscription(tx, name))
        return make_json_reply(
            PushView(
                key=self._sender.public_key if self._sender is not None else "",
                subscribed=known is not None,
                shows_content=known.shows_content if known is not None else False,
                quiet_from=known.quiet_from if known is not None else "",
                quiet_to=known.quiet_to if known is not None else "",
            )
        )

    async def _subscribe(self, request: WebRequest) -> Reply:
        asked, caller = request.read(PushRequest), request.caller
        subscription = PushSubscription(
            endpoint=asked.endpoint,
            p256dh=asked.p256dh,
            auth=asked.auth,
            person=caller.person,
            shows_content=asked.shows_content,
            quiet_from=asked.quiet_from,
            quiet_to=asked.quiet_to,
            zone=asked.zone,
        )
        self._require_sender().check(subscription)
        await self._store.write(lambda tx: write_subscription(tx, caller.name, subscription))
        return await self._show(request)

    async def _unsubscribe(self, request: WebRequest) -> Reply:
        name = request.caller.name
        await self._store.write(lambda tx: delete_subscription(tx, name))
        return await self._show(request)

    async def _try(self, request: WebRequest) -> Reply:
        await self._require_sender().send(
            request.caller.person, WebNotification("delivered", "", "Talaria", "Push notifications work.")
        )
        return make_json_reply(Done())

    def _require_sender(self) -> PushSender:
        if self._sender is None:
            raise make_conflict(_MISSING, code="not_available")
        return self._sender
