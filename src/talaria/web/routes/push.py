"""Routes of push notifications for the browser that asks."""

from talaria.access.browsers import PushSubscription, delete_subscription, read_subscription, write_subscription
from talaria.contracts.store import Store
from talaria.http.errors import make_conflict
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.web.front_door import USER, WebRequest
from talaria.web.notifications import WebNotification
from talaria.web.push import PushSender
from talaria.web.wire import Done, PushRequest, PushView

_TAG = "web"
_MISSING = "Push notifications need the extra `push`: install `talaria-agent[push]`, and restart the server."


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
