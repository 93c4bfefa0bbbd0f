"""What subcommands ask about the routes on which programs post events."""

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import structs

from talaria.contracts.webhooks import RouteState, Trial
from talaria.core.errors import NotFound, Refused
from talaria.platforms.webhook.incoming import Unreadable, read_event, translate
from talaria.platforms.webhook.routes import SUFFIX, Routes
from talaria.platforms.webhook.settings import read_settings
from talaria.settings.chats import ChatNetwork
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets

WEBHOOK = "webhook"


class ProfileWebhooks:
    """The routes of a profile, as a gateway would serve them."""

    def __init__(self, network: ChatNetwork, secrets: Secrets, profile: Profile) -> None:
        self._settings = read_settings(WEBHOOK, network.options, profile.folder / "platforms" / WEBHOOK)
        self._secrets = secrets
        self._routes = Routes(self._settings.folder)
        self.folder = str(self._settings.folder)

    def routes(self) -> list[RouteState]:
        """Return all of them, those with faults too."""
        return [self._state(name) for name in self._routes.names()]

    def try_out(self, name: str, body: bytes, headers: Mapping[str, str]) -> Trial:
        """Tell what an event would become on a route; raises `NotFound`, or `Refused` for a fault."""
        route = self._routes.find(name)
        if route is None:
            raise NotFound(
                f"There is no route `{name}`: {self._settings.folder / f'{name}{SUFFIX}'} would be its file."
            )
        try:
            event = read_event({key.lower(): value for key, value in headers.items()}, body, route)
        except Unreadable as error:
            raise Refused(f"A sender would be refused: {error}.") from error
        told = translate(route, event, body, platform=WEBHOOK, at=datetime.now(UTC), mark="…")
        if told.incoming is None:
            return Trial(why=told.why, missing=told.missing)
        return Trial(
            text=told.incoming.text,
            id=told.incoming.message_id,
            conversation=told.incoming.address.thread_id,
            missing=told.missing,
        )

    def _state(self, name: str) -> RouteState:
        host = f"[{self._settings.host}]" if ":" in self._settings.host else self._settings.host
        state = RouteState(
            name=name,
            file=str(self._settings.folder / f"{name}{SUFFIX}"),
            url=f"http://{host}:{self._settings.port}/webhooks/{name}",
        )
        try:
            route = self._routes.find(name)
        except Refused as error:
            return structs.replace(state, problem=str(error))
        if route is None:  # gone since it was listed
            return state
        told = route.told
        needed = {told.secret} if told.scheme != "none" else set()
        needed |= {route.reply_secret} if told.deliver_to else set()
        lacking = sorted(name for name in needed if not self._secrets.get(name))
        problem = f"The secret {' and '.join(lacking)} is not set." if lacking else ""
        if told.scheme == "none" and not self._settings.is_on_loopback:
            problem = f"Unsigned posts are taken on loopback only, not on {self._settings.host}."
        return structs.replace(
            state,
            title=told.title,
            scheme=told.scheme,
            secret=told.secret if told.scheme != "none" else "",
            deliver_to=told.deliver_to,
            problem=problem,
        )
