"""Checkpoints of the agent's changes: those of a profile, and the recorder of one open session."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from talaria.contracts.tool import Effect, ProposedAction, Workspace
from talaria.core.aio import shield_until_done
from talaria.core.errors import TalariaError
from talaria.core.events import TurnBegan, TurnEvent
from talaria.core.installation import install_command
from talaria.core.session_context import SessionContext
from talaria.settings.model import LiveSettings, Settings
from talaria.settings.profiles import Profile, find_home
from talaria.tools.checkpoints.history import Retention, WorkspaceHistory
from talaria.tools.checkpoints.profile_checkpoints import CheckpointOptions, ProfileCheckpoints
from talaria.tools.checkpoints.repository import SnapshotLimits

_MEGABYTE = 1_000_000
log = logging.getLogger(__name__)


def open_checkpoints(settings: Settings, profile: Profile, environment: Mapping[str, str]) -> ProfileCheckpoints:
    """Return the checkpoints of a profile, with the limits of its settings."""
    chosen, home = settings.checkpoints, find_home(environment)
    return ProfileCheckpoints(
        CheckpointOptions(
            folder=profile.checkpoints_folder,
            home=Path(environment.get("HOME") or home.parent),
            path=environment.get("PATH", ""),
            private=(home / "profiles", profile.folder),
            limits=SnapshotLimits(
                max_files=chosen.max_files,
                max_file_bytes=round(chosen.max_file_megabytes * _MEGABYTE),
                max_new_bytes=chosen.max_megabytes * _MEGABYTE,
                seconds=chosen.max_seconds,
                exclude=chosen.exclude,
            ),
            retention=Retention(
                checkpoints=chosen.keep, age=timedelta(days=chosen.keep_days), lock_seconds=chosen.max_seconds
            ),
            install=lambda: install_command("checkpoints"),
            engine=chosen.engine,
        )
    )


def make_recorder(
    live: LiveSettings,
    profile: Profile,
    environment: Mapping[str, str],
    folder: Path,
    turn: Callable[[], Sequence[TurnEvent]],
    mask: Callable[[str], str],
) -> "CheckpointRecorder":
    """Return the recorder of a session that began in ``folder``, with the settings in force at each call."""

    def open_enabled() -> ProfileCheckpoints | None:
        settings = live.current
        return open_checkpoints(settings, profile, environment) if settings.checkpoints.enabled else None

    return CheckpointRecorder(open_enabled, folder, turn, mask)


def may_change_files(effect: Effect, proposed_action: ProposedAction) -> bool:
    """Return whether a call may change files of the workspace, judging by its declared effect.

    Commands and code count, whatever they are: what they do isn't known before. Tools of MCP servers count unless they
    declare that they read.
    """
    if effect is Effect.READS:
        return False
    if proposed_action.kind == "other":
        return effect is Effect.IRREVERSIBLE
    return proposed_action.kind in ("write", "command", "code")


class CheckpointRecorder:
    """Implementation of `ChangeRecorder` for one open session.

    ``checkpoints`` returns those of the profile, ``None`` if they are off. ``turn`` returns the events of the running
    turn; its request labels the checkpoint. A failure never stops a call; it is reported once.
    """

    def __init__(
        self,
        checkpoints: Callable[[], ProfileCheckpoints | None],
        began_in: Path,
        turn: Callable[[], Sequence[TurnEvent]],
        mask: Callable[[str], str],
    ) -> None:
        self._checkpoints = checkpoints
        self._began_in = began_in
        self._turn = turn
        self._mask = mask
        self._reported: set[str] = set()

    @asynccontextmanager
    async def around(
        self, effect: Effect, proposed_action: ProposedAction, workspace: Workspace, context: SessionContext
    ) -> AsyncIterator[str]:
        """Record the state before and after the block, if it may change files."""
        checkpoints = self._checkpoints() if may_change_files(effect, proposed_action) else None
        if checkpoints is None:
            yield ""
            return
        history, notice = None, ""
        try:
            history = await shield_until_done(
                asyncio.to_thread(self._record_before, checkpoints, proposed_action, workspace, context)
            )
        except TalariaError as error:
            notice = self._report(error)
        try:
            yield notice
        finally:
            if history is not None:
                try:
                    await shield_until_done(asyncio.to_thread(history.record_after, context.turn_id))
                except TalariaError as error:
                    log.warning("session %s: %s", context.session_id, error)

    def _record_before(
        self,
        checkpoints: ProfileCheckpoints,
        proposed_action: ProposedAction,
        workspace: Workspace,
        context: SessionContext,
    ) -> WorkspaceHistory | None:
        folder = workspace.folder
        if proposed_action.kind == "write":
            folder = _find_existing_folder(workspace.resolve(proposed_action.target).parent)
        if checkpoints.find_root(folder, self._began_in) is None:
            return None
        history = checkpoints.open(folder, self._began_in)
        request = next((event.text for event in self._turn() if isinstance(event, TurnBegan)), "")
        label = self._mask(request or proposed_action.target)
        history.record_before(label, context.session_id, context.turn_id)
        return history

    def _report(self, error: TalariaError) -> str:
        text = error.for_owner
        log.info("no checkpoint: %s", text)
        if text in self._reported:
            return ""
        self._reported.add(text)
        return text


def _find_existing_folder(folder: Path) -> Path:
    return next((one for one in (folder, *folder.parents) if one.is_dir()), folder)
