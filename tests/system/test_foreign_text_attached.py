"""`talaria attach` and turns in a group: text that the owner types there, and earlier text of guests."""

import re
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.cli.chat.chat_screen import opened, say
from tests.system.shared_group import BOSS, GUEST
from tests.system.shared_group_process import GroupProcess, prepare_group_process

from talaria.testing.screen import Screen

WATCHED = re.compile("Watching")


def attached(here: GroupProcess) -> AbstractAsyncContextManager[Screen]:
    return opened(here.program, "attach", here.session_id, columns=100)


@pytest.mark.parametrize("running", [BOSS, GUEST])
async def test_the_terminal_steers_turns_of_the_owner_only(tmp_path: Path, running: str) -> None:
    async with prepare_group_process(tmp_path, busy="steer") as here, here.running():
        await here.move_session_to_group()
        await here.hold(running)
        here.say(GUEST, "RUN foreign")
        await here.pending("RUN foreign")
        async with attached(here) as screen:
            await screen.wait_for(WATCHED)
            await say(screen, "/steer RUN steered")
            await here.pending("RUN steered")
            await say(screen, "RUN typed")
            await here.pending("RUN typed")
            here.released.set()
            await here.answered("HOLD", "RUN foreign", "RUN steered", "RUN typed")
        assert here.ran("steered")
        assert here.ran("typed")
        assert not here.ran("foreign")
        assert here.share_a_turn("HOLD", "RUN steered") == (running == BOSS)
        assert not any(here.share_a_turn("RUN foreign", f"RUN {word}") for word in ("steered", "typed"))


@pytest.mark.parametrize("running", [BOSS, GUEST])
async def test_pending_text_of_a_guest_has_guest_rights_after_the_owner_takes_over(
    tmp_path: Path, running: str
) -> None:
    async with prepare_group_process(tmp_path) as here, here.running():
        await here.move_session_to_group()
        await here.hold(running)
        here.say(GUEST, "RUN foreign")
        await here.pending("RUN foreign")
        async with attached(here) as screen:
            await screen.wait_for(WATCHED)
            await say(screen, "/take")
            await screen.wait_for(re.compile("You took over the conversation"))
            here.released.set()
            await screen.wait_for(re.compile("answered RUN foreign"))
            await screen.wait_for(re.compile("^❯ Ask anything", re.MULTILINE))
            await say(screen, "RUN own")
            await screen.wait_for(re.compile("answered RUN own"))
        assert here.ran("own")
        assert not here.ran("foreign")
        assert not here.share_a_turn("HOLD", "RUN foreign") or running == GUEST
        assert not here.share_a_turn("RUN own", "RUN foreign")
