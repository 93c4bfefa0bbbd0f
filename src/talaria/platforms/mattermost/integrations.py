"""Integrations that Mattermost calls: buttons and the slash command, each verified."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Button, Incoming, Sender
from talaria.core.errors import Rejected
from talaria.core.ids import new_id
from talaria.platforms.mattermost.client import MattermostClient
from talaria.platforms.mattermost.settings import MattermostSettings
from talaria.platforms.mattermost.wire import MattermostChannel, MattermostUser, to_address
from talaria.platforms.push_receiver import PushRequest, PushResponse
from talaria.platforms.signatures import BadSignature, check_signatures, sign_base64
from talaria.platforms.webhook_endpoint import EndpointSettings, PostRejected, WebhookEndpoint

log = logging.getLogger(__name__)

_ACCEPTED = PushResponse(200, b"{}", "application/json")  # the server reads every answer as JSON
_SIGNED = ("value", "channel", "root", "nonce")


class ButtonContext(Struct, frozen=True):
    """Context of a button; only the server sees it, and the signature shows that it comes from us."""

    value: str
    channel: str
    root: str
    nonce: str
    signature: str = ""


class PressedButton(Struct, frozen=True):
    """A pressed button."""

    user_id: str
    channel_id: str
    post_id: str
    context: ButtonContext
    user_name: str = ""


class RegisteredCommand(Struct, frozen=True):
    """A slash command of a team; ``token`` proves that a use of it comes from the server."""

    id: str
    team_id: str
    trigger: str
    url: str = ""
    token: str = ""
    creator_id: str = ""


class MattermostTeam(Struct, frozen=True):
    """A team that we are in."""

    id: str
    display_name: str = ""


class MattermostIntegrations:
    """Buttons and the slash command of one account; ``find_channel`` returns a channel by its id."""

    def __init__(
        self,
        settings: MattermostSettings,
        endpoint: EndpointSettings,
        client: MattermostClient,
        find_channel: Callable[[str], Awaitable[MattermostChannel]],
        commands: Collection[str],
    ) -> None:
        self._settings = settings
        self._url = endpoint.public_url
        self._client = client
        self._find_channel = find_channel
        self._commands = frozenset(commands)
        self._tokens: set[str] = set(settings.command_tokens)
        self.endpoint = WebhookEndpoint(endpoint, self._verify, self._parse, accepted=_ACCEPTED)

    def attach(self, buttons: Sequence[Button], channel_id: str, root_id: str) -> dict[str, Any]:
        """Return the properties of a post with these buttons; none removes those that it has."""
        if not buttons:
            return {"attachments": []}
        nonce = new_id()
        actions = [
            {
                "id": f"button{number}",  # letters and digits only
                "name": button.label,
                "type": "button",
                "integration": {"url": self._url, "context": self._sign(button.value, channel_id, root_id, nonce)},
            }
            for number, button in enumerate(buttons)
        ]
        return {"attachments": [{"actions": actions}]}

    async def register(self, me: MattermostUser) -> None:
        """Register the slash command in all teams, where the account may; otherwise the log says what to do."""
        self._tokens = set(self._settings.command_tokens)
        for team in await self._client.get("/users/me/teams", list[MattermostTeam]):
            try:
                self._tokens.add(await self._register_in(team, me))
            except Rejected as error:
                log.log(
                    logging.INFO if self._settings.command_tokens else logging.WARNING,
                    "%s: can't register /%s in the team %s: %s. Let the account manage slash commands, or register it "
                    "by hand for %s and store its token as MATTERMOST_COMMAND_TOKEN.",
                    *(self._settings.name, self._settings.command, team.display_name or team.id, error, self._url),
                )

    async def _register_in(self, team: MattermostTeam, me: MattermostUser) -> str:
        """Return the token of the team's command, created or updated if needed."""
        known = await self._client.get(f"/commands?team_id={team.id}&custom_only=true", list[RegisteredCommand])
        ours = [one for one in known if one.trigger == self._settings.command and one.creator_id == me.id]
        body: dict[str, object] = {
            "team_id": team.id,
            "method": "P",
            "trigger": self._settings.command,
            "url": self._url,
            "auto_complete": True,
            "auto_complete_desc": "Commands of the agent; `help` lists them",
            "auto_complete_hint": "[command or question]",
            "display_name": self._settings.command,
        }
        if not ours:
            return (await self._client.post("/commands", body, RegisteredCommand)).token
        if ours[0].url != self._url:
            body |= {"id": ours[0].id, "token": ours[0].token, "creator_id": me.id}
            return (await self._client.post(f"/commands/{ours[0].id}", body, RegisteredCommand, "PUT")).token
        return ours[0].token

    def _sign(self, value: str, channel: str, root: str, nonce: str) -> dict[str, str]:
        fields = dict(zip(_SIGNED, (value, channel, root, nonce), strict=True))
        return fields | {"signature": self._compute_signature(fields)}

    def _compute_signature(self, fields: Mapping[str, str]) -> str:
        content = msgspec.json.encode(["mattermost button", *(fields[name] for name in _SIGNED)])
        return sign_base64(self._settings.token, content)

    def _verify(self, _: PushRequest, body: bytes) -> None:
        if not body.startswith(b"{"):
            check_signatures(_read_form(body).get("token", "") or "-", self._tokens)
            return
        press = _read_press(body)
        check_signatures(self._compute_signature(msgspec.structs.asdict(press.context)), [press.context.signature])
        if press.channel_id != press.context.channel:
            raise BadSignature("the button belongs to another channel")

    async def _parse(self, body: bytes) -> Sequence[Incoming]:
        return [await (self._read_press(body) if body.startswith(b"{") else self._read_command(body))]

    async def _read_press(self, body: bytes) -> Incoming:
        press = _read_press(body)
        context, channel = press.context, await self._find_channel(press.channel_id)
        return Incoming(
            # A repeated press of the same person is the same update: captured posts can't be used again.
            external_id=f"{context.nonce}:{context.value}:{press.user_id}",
            address=to_address(self._settings.name, channel, context.root),
            sender=Sender(press.user_id, press.user_name),
            at=datetime.now(UTC),
            message_id=press.post_id,
            chat_name=channel.display_name or press.user_name,
            button=context.value,
            server=channel.team_id,
        )

    async def _read_command(self, body: bytes) -> Incoming:
        form = _read_form(body)
        channel_id, user_id, trigger = form.get("channel_id", ""), form.get("user_id", ""), form.get("trigger_id", "")
        if not channel_id or not user_id or not trigger:
            raise ValueError("the slash command has no channel, user or trigger")
        try:
            await self._client.get(f"/channels/{channel_id}/members/me", dict)
            channel = await self._find_channel(channel_id)
        except Rejected as error:
            raise PostRejected(HTTPStatus.OK, "Add me to this channel first, then I can answer here.") from error
        text = form.get("text", "").strip()
        name = text.removeprefix("/").partition(" ")[0]
        is_command = text.startswith("/") or name in self._commands
        return Incoming(
            external_id=f"command:{trigger}",
            address=to_address(self._settings.name, channel, form.get("root_id", "")),
            sender=Sender(user_id, form.get("user_name", "")),
            at=datetime.now(UTC),
            text=(f"/{text.removeprefix('/')}" if is_command else text) or "/help",
            chat_name=channel.display_name or form.get("user_name", ""),
            server=channel.team_id,
        )


def _read_press(body: bytes) -> PressedButton:
    try:
        return msgspec.json.decode(body, type=PressedButton)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is no pressed button of ours: {error}") from error


def _read_form(body: bytes) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}
