"""Media services for chats: attachments, speech recognition, speech output and image descriptions."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from talaria.agent.auxiliary import VisionModel
from talaria.app.configured_providers import ConfiguredProviders
from talaria.contracts.platform import Platform
from talaria.contracts.voice import Speaker, Transcriber
from talaria.core.errors import Refused, TalariaError
from talaria.gateway.attachments import AttachmentFetcher, FetchLimits, StickerDescriber, VoiceNoteTranscriber
from talaria.gateway.outbound.voice_replies import VoiceReplies
from talaria.http_client.client import HttpPool
from talaria.providers.voice import AudioServer, AudioSpeaker, AudioTranscriber, CommandSpeaker, CommandTranscriber
from talaria.settings.secrets import KNOWN_SECRETS

if TYPE_CHECKING:  # imported only for annotations: the application imports the gateway
    from talaria.app.application import TalariaApplication


_COMMAND = "command"


class MediaModels:
    """Factory of speech and vision models by the current settings; owns their HTTP connections."""

    def __init__(self, application: "TalariaApplication") -> None:
        self._application = application
        self._http = HttpPool()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def transcriber(self) -> Transcriber | None:
        """Return the transcriber of voice notes, or ``None`` if it is off; raises if the settings are invalid."""
        voice = self._application.settings.voice
        if voice.transcribe == _COMMAND:
            return CommandTranscriber(_require_command(voice.command, "voice.command"), self._build_environment())
        if not voice.transcribe:
            return None
        name, _, model = voice.transcribe.partition(":")
        return AudioTranscriber(self._build_server(name), self._http, model)

    def speaker(self) -> Speaker | None:
        """Return the speaker for replies, or ``None`` if it is off; raises if the settings are invalid."""
        voice = self._application.settings.voice
        if voice.speaker == _COMMAND:
            return CommandSpeaker(
                _require_command(voice.speak_command, "voice.speak_command"), self._build_environment()
            )
        if not voice.speaker:
            return None
        name, _, model = voice.speaker.partition(":")
        return AudioSpeaker(self._build_server(name), self._http, model, voice.voice)

    async def find_vision_model(self) -> VisionModel | None:
        """Return a model that accepts images, preferring the auxiliary one; ``None`` if unavailable or switched off."""
        if not self._application.settings.media.describe_stickers:
            return None
        try:
            chosen = await self._application.models.chosen()
            choices = (*self._application.models.auxiliary(chosen), *self._application.models.chain(chosen))
        except TalariaError:
            return None
        vision_choices = (choice for choice in choices if choice.info is not None and choice.info.images)
        return next((VisionModel(choice.provider, choice.model) for choice in vision_choices), None)

    def _build_server(self, name: str) -> AudioServer:
        account = ConfiguredProviders(self._application.settings, self._application.secrets).get(name)
        key = next(iter(account.keys(self._application.secrets)), "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return AudioServer(
            name=account.preset.title,
            base_url=account.preset.base_url,
            headers={**headers, **account.preset.headers},
            timeouts=account.timeouts,
        )

    def _build_environment(self) -> dict[str, str]:
        secret = {one.name for one in KNOWN_SECRETS}
        return {name: value for name, value in self._application.environment.items() if name not in secret}


def _require_command(command: str, setting: str) -> str:
    if not command.strip():
        raise Refused(f"There is no command. Set {setting}.")
    return command


_MEGABYTE = 1_000_000


class MediaServices(Struct, frozen=True):
    """Media services of a gateway: one fetches attachments before a turn, one speaks replies after it."""

    attachment_fetcher: AttachmentFetcher
    spoken: VoiceReplies


def open_media(
    application: "TalariaApplication", platforms: Mapping[str, Platform], closing: AsyncExitStack
) -> MediaServices:
    """Return the media services for these networks, by name; leaving ``closing`` closes their connections."""
    media_models = MediaModels(application)
    closing.push_async_callback(media_models.close)
    folder = application.profile.media_folder

    def limits() -> FetchLimits:
        media = application.settings.media
        return FetchLimits(media.fetch_seconds, round(media.file_megabytes * _MEGABYTE))

    note_transcriber = VoiceNoteTranscriber(
        media_models.transcriber, lambda: application.settings.voice.seconds, application.mask
    )
    stickers = StickerDescriber(application.store, media_models.find_vision_model)
    return MediaServices(
        AttachmentFetcher(platforms, folder, limits, note_transcriber, stickers, application.mask),
        VoiceReplies(application.store, platforms, folder, media_models.speaker, application.settings_admin),
    )
