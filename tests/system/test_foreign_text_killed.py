"""After a gateway was killed, text of one person still does not run with the rights of another."""

from pathlib import Path

import pytest
from tests.system.shared_group import BOSS, GUEST
from tests.system.shared_group_process import prepare_group_process


@pytest.mark.parametrize("busy", ["queue", "steer"])
@pytest.mark.parametrize("running", [BOSS, GUEST])
async def test_texts_of_two_people_are_not_merged_after_a_kill(tmp_path: Path, busy: str, running: str) -> None:
    async with prepare_group_process(tmp_path, busy=busy) as here:
        async with here.running() as gateway:
            await here.move_session_to_group()
            await here.hold(running)
            for person, word in ((GUEST, "one"), (BOSS, "two"), (GUEST, "three"), (BOSS, "four")):
                here.say(person, f"RUN {word}")
                await here.pending(f"RUN {word}")
            gateway.kill()
            await gateway.wait()
        here.held.clear()
        async with here.running():
            await here.held.wait()  # the turn that was cut off is resumed
            here.released.set()
            await here.answered("HOLD", "RUN one", "RUN two", "RUN three", "RUN four")
        assert [here.ran(word) for word in ("one", "two", "three", "four")] == [False, True, False, True]
        for foreign in ("RUN one", "RUN three"):
            assert not any(here.share_a_turn(foreign, own) for own in ("RUN two", "RUN four"))
        others = ("RUN one", "RUN three") if running == BOSS else ("RUN two", "RUN four")
        assert not any(here.share_a_turn("HOLD", other) for other in others)
