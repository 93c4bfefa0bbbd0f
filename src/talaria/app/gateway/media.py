"""Media services for chats: attachments, speech recognition, speech output and image descriptions."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from talaria.app.media_models import MediaModels
from talaria.contracts.platform import Platform
from talaria.gateway.attachments import AttachmentFetcher, FetchLimits, StickerDescriber, VoiceNoteTranscriber
from talaria.gateway.outbound.voice_replies import VoiceReplies

if TYPE_CHECKING:  # imported only for annotations: the application imports the gateway
    from talaria.app.application import TalariaApplication


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
