"""Models for speech, images and vision by the current settings, those of a session, and the cost of images."""

import asyncio
import math
from typing import TYPE_CHECKING

from talaria.agent.auxiliary import VisionModel
from talaria.agent.environment import Budget
from talaria.app.configured_providers import ConfiguredProviders
from talaria.contracts.provider import ImageMaker, MadeImage, ModelInfo, SourceImage, Speaker, Transcriber
from talaria.contracts.store import Store
from talaria.core.errors import PriceUnknown, ProviderError, Refused, TalariaError
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.http_client.client import HttpPool
from talaria.providers.media import (
    AudioServer,
    AudioSpeaker,
    AudioTranscriber,
    CommandSpeaker,
    CommandTranscriber,
    OpenAIImages,
)
from talaria.settings.secrets import list_secret_names

if TYPE_CHECKING:  # imported only for annotations: the application imports the gateway
    from talaria.app.application import TalariaApplication
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the application opens sessions; the models are loaded with the first image or recording
    from talaria.app.application import TalariaApplication

_COMMAND = "command"
_MICRODOLLARS = 1_000_000


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

    def image_maker(self, budget: Budget, session_id: SessionId) -> ImageMaker:
        """Return the configured image model, which counts towards a budget; raises if the settings are invalid."""
        name, _, model = self._application.settings.images.generate.partition(":")
        maker = OpenAIImages(self._build_server(name), self._http, model)
        providers = ConfiguredProviders(self._application.settings, self._application.secrets)
        price = math.ceil(self._application.settings.images.price * _MICRODOLLARS)
        info = ModelInfo(name=model, output_price=price, free=providers.is_free(name))
        return MeteredImageMaker(maker, info, budget, self._application.store, session_id)

    async def find_vision_model(self) -> VisionModel | None:
        """Return a model that accepts images, preferring the auxiliary one; ``None`` if unavailable or switched off."""
        if not self._application.settings.media.describe_stickers:
            return None
        try:
            chosen = await self._application.models.resolve_default_model()
            choices = (
                *self._application.models.build_auxiliary_chain(chosen),
                *self._application.models.build_chain(chosen),
            )
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
        secret = set(list_secret_names())
        return {name: value for name, value in self._application.environment.items() if name not in secret}


class MeteredImageMaker:
    """An `ImageMaker` that reserves the price of an image before it is made, and records the cost.

    ``info`` has that price as its price of output. An image that fails costs nothing; one that is interrupted counts,
    because its provider may charge it.
    """

    def __init__(self, maker: ImageMaker, info: ModelInfo, budget: Budget, store: Store, session_id: SessionId) -> None:
        self._maker = maker
        self._info = info
        self._budget = budget
        self._store = store
        self._session_id = session_id

    async def make(self, prompt: str, *, size: str = "", sources: tuple[SourceImage, ...] = ()) -> MadeImage:
        """Make an image; raises `OverBudget`, or `Refused` if there is a cap and no price."""
        price = 0 if self._info.free else self._info.output_price
        try:
            hold = await self._budget.reserve(price, self._info)
        except PriceUnknown as error:
            raise Refused(
                "A spending limit is set, but the price of an image is unknown, so it can't be enforced. Set the price "
                "in dollars: `talaria config set images.price PRICE`."
            ) from error
        spent = price
        try:
            return await self._maker.make(prompt, size=size, sources=sources)
        except ProviderError:
            spent = 0
            raise
        finally:
            await asyncio.shield(self._budget.settle(hold, spent))
            await asyncio.shield(self._record(spent))

    async def _record(self, spent: int) -> None:
        usage, priced = Usage(calls=1, cost_microdollars=spent), self._info.has_price
        await self._store.write(
            lambda tx: tx.usage.add(self._session_id, usage, model=self._info.name, has_price=priced)
        )


class SessionMedia:
    """Models for images and speech of one session; images count towards its budget."""

    def __init__(self, application: "TalariaApplication", budget: Budget, session_id: SessionId) -> None:
        self._application = application
        self._budget = budget
        self._session_id = session_id
        self._models: MediaModels | None = None

    def open(self, closing: AsyncExitStack) -> None:
        """Open the models once; leaving ``closing`` closes their connections."""
        if self._models is None:
            self._models = MediaModels(self._application)
            closing.push_async_callback(self._models.close)

    def image_maker(self) -> "ImageMaker":
        """Return the image model; `open` comes first."""
        assert self._models is not None
        return self._models.image_maker(self._budget, self._session_id)

    def speaker(self) -> "Speaker | None":
        """Return the speaker, or ``None`` if it is off; `open` comes first."""
        assert self._models is not None
        return self._models.speaker()


def _require_command(command: str, setting: str) -> str:
    if not command.strip():
        raise Refused(f"There is no command. Set {setting}.")
    return command
