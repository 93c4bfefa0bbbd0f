"""What hears, speaks and sees for chats, as the settings are now."""

from typing import TYPE_CHECKING

from talaria.agent.seeing import Sight
from talaria.app.models import Accounts
from talaria.contracts.voice import Speaker, Transcriber
from talaria.core.errors import Refused, TalariaError
from talaria.providers.http import HttpPool
from talaria.providers.voice.audio import AudioServer, AudioSpeaker, AudioTranscriber
from talaria.providers.voice.command import CommandSpeaker, CommandTranscriber
from talaria.settings.secrets import KNOWN_SECRETS

if TYPE_CHECKING:  # the house has a gateway that needs senses; they only look at it
    from talaria.app.house import House

_COMMAND = "command"


class Senses:
    """Opens what is needed when it is needed; `close` lets go of connections."""

    def __init__(self, house: "House") -> None:
        self._house = house
        self._http = HttpPool()

    async def close(self) -> None:
        """Let go of connections."""
        await self._http.close()

    def transcriber(self) -> Transcriber | None:
        """Return what writes down voice notes, ``None`` where nothing is to; raises what is wrong with the settings."""
        voice = self._house.settings.voice
        if voice.transcribe == _COMMAND:
            return CommandTranscriber(_given(voice.command, "voice.command"), self._environment())
        if not voice.transcribe:
            return None
        name, _, model = voice.transcribe.partition(":")
        return AudioTranscriber(self._server(name), self._http, model)

    def speaker(self) -> Speaker | None:
        """Return what speaks replies, ``None`` where nothing is to; raises what is wrong with the settings."""
        voice = self._house.settings.voice
        if voice.speaker == _COMMAND:
            return CommandSpeaker(_given(voice.speak_command, "voice.speak_command"), self._environment())
        if not voice.speaker:
            return None
        name, _, model = voice.speaker.partition(":")
        return AudioSpeaker(self._server(name), self._http, model, voice.voice)

    async def sight(self) -> Sight | None:
        """Return a model that can see, the auxiliary one first; ``None`` where there is none or it is not wanted."""
        if not self._house.settings.media.describe_stickers:
            return None
        try:
            chosen = await self._house.models.chosen()
            choices = (*self._house.models.auxiliary(chosen), *self._house.models.chain(chosen))
        except TalariaError:
            return None
        seeing = (choice for choice in choices if choice.info is not None and choice.info.images)
        return next((Sight(choice.provider, choice.model) for choice in seeing), None)

    def _server(self, name: str) -> AudioServer:
        account = Accounts(self._house.settings, self._house.secrets).get(name)
        key = next(iter(account.keys(self._house.secrets)), "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return AudioServer(
            name=account.preset.title,
            base_url=account.preset.base_url,
            headers={**headers, **account.preset.headers},
            timeouts=account.timeouts,
        )

    def _environment(self) -> dict[str, str]:
        secret = {one.name for one in KNOWN_SECRETS}
        return {name: value for name, value in self._house.environment.items() if name not in secret}


def _given(command: str, setting: str) -> str:
    if not command.strip():
        raise Refused(f"No command is given: set {setting}.")
    return command
