"""Image and speech models of a session, opened with the first tool that needs them."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from talaria.agent.environment import Budget
from talaria.core.ids import SessionId

if TYPE_CHECKING:  # the application opens sessions; the models are loaded with the first image or recording
    from talaria.app.application import TalariaApplication
    from talaria.app.media_models import MediaModels
    from talaria.contracts.media import ImageMaker, Speaker


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
            from talaria.app.media_models import MediaModels  # noqa: PLC0415 (loaded with the first)

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
