"""Webhook routes of a profile, for subcommands that list and test them."""

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import structs

from talaria.contracts.setup import RouteState, WebhookTrial
from talaria.core.errors import NotFound, Refused
from talaria.platforms.webhook.incoming import UnreadableBody, read_event, translate
from talaria.platforms.webhook.routes import SUFFIX, Routes
from talaria.platforms.webhook.settings import read_settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets
from talaria.settings.sections.chats import ChatNetworkSettings

WEBHOOK = "webhook"


class ProfileWebhooks:
    """Webhook routes of a profile, as a gateway would serve them."""

    def __init__(self, network: ChatNetworkSettings, secrets: Secrets, profile: Profile) -> None:
        self._settings = read_settings(WEBHOOK, network.options, profile.folder / "platforms" / WEBHOOK)
        self._secrets = secrets
        self._routes = Routes(self._settings.folder)
        self.folder = str(self._settings.folder)

    def routes(self) -> list[RouteState]:
        """Return all routes, including invalid ones."""
        return [self._build_state(name) for name in self._routes.names()]

    def try_out(self, name: str, body: bytes, headers: Mapping[str, str]) -> WebhookTrial:
        """Return the message that an event would become on a route; raises `NotFound` or `Refused`."""
        route = self._routes.find(name)
        if route is None:
            raise NotFound(f"There is no route `{name}`. Create {self._settings.folder / f'{name}{SUFFIX}'} to add it.")
        try:
            event = read_event({key.lower(): value for key, value in headers.items()}, body, route)
        except UnreadableBody as error:
            raise Refused(f"The request would be rejected: {error}.") from error
        parsed = translate(route, event, body, platform=WEBHOOK, at=datetime.now(UTC), mark="…")
        if parsed.incoming is None:
            return WebhookTrial(why=parsed.why, missing=parsed.missing)
        return WebhookTrial(
            text=parsed.incoming.text,
            id=parsed.incoming.message_id,
            conversation=parsed.incoming.address.thread_id,
            missing=parsed.missing,
        )

    def _build_state(self, name: str) -> RouteState:
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
        if route is None:  # deleted since it was listed
            return state
        parsed = route.parsed
        required = {parsed.secret} if parsed.scheme != "none" else set()
        required |= {route.reply_secret} if parsed.deliver_to else set()
        missing_secrets = sorted(name for name in required if not self._secrets.get(name))
        problem = f"The secret {' and '.join(missing_secrets)} isn't set." if missing_secrets else ""
        if parsed.scheme == "none" and not self._settings.is_on_loopback:
            problem = f"Unsigned requests are accepted only on loopback, not on {self._settings.host}."
        return structs.replace(
            state,
            title=parsed.title,
            scheme=parsed.scheme,
            secret=parsed.secret if parsed.scheme != "none" else "",
            deliver_to=parsed.deliver_to,
            problem=problem,
        )
