"""Text of one person never runs with the rights of another, whichever way it enters a running turn."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.system.shared_group import BOSS, GROUP, GUEST, SECONDS, ServedGroup, serve_group

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.contracts.store import Transaction
from talaria.core.ids import new_id
from talaria.core.messages import OWNER, UNKNOWN, Message, Text, api_sender, chat_sender
from talaria.runtime.completions import Origin, queue_reports, report
from talaria.runtime.live.remote import send_to_session
from talaria.runtime.turn_log import STEERING
from talaria.runtime.turns import make_arrival

Enter = Callable[[ServedGroup, str], Awaitable[None]]


async def by_message(here: ServedGroup, text: str) -> None:
    here.say(GUEST, text)


async def by_steer_command(here: ServedGroup, text: str) -> None:
    here.say(GUEST, f"/steer {text}")


async def by_queue_command(here: ServedGroup, text: str) -> None:
    here.say(GUEST, f"/queue {text}")


async def by_attachment(here: ServedGroup, text: str) -> None:
    file = Attachment(new_id(), "document", "notes.txt", "text/plain")
    here.network.say_with_file(GROUP, file, text.encode(), text=text, sender=GUEST)


async def by_reply(here: ServedGroup, text: str) -> None:
    await here.gateway.dispatcher.receive(_incoming(text, reply_to="1"))


async def by_edit(here: ServedGroup, text: str) -> None:
    await here.gateway.dispatcher.receive(_incoming(text, edited=True))


async def from_another_process(here: ServedGroup, text: str) -> None:
    """Steer from another process, as `/steer` does in a chat whose turn another worker runs."""
    message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
    sender = chat_sender("loopback", GUEST)
    await send_to_session(
        here.gateway.application.store, here.session_id, message, source="loopback", sender=sender, steering=True
    )


async def by_unnamed_sender(here: ServedGroup, text: str) -> None:
    """Steer as a sender whom the network does not name."""
    await here.gateway.dispatcher.receive(_incoming(text, sender=""))


async def by_api_key(here: ServedGroup, text: str) -> None:
    """Add a steering message of an API key to the inbox."""
    message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
    arrival = make_arrival(here.session_id, "api", new_id(), message, kind=STEERING, sender=api_sender("phone"))
    await here.gateway.application.store.write(lambda tx: tx.inbox.add(arrival))


async def by_goal(here: ServedGroup, text: str) -> None:
    """Set a goal, which is refused while a turn runs, and then queue the same text."""
    here.say(GUEST, f"/goal {text}")
    here.say(GUEST, f"/queue {text}")


def _incoming(text: str, *, sender: str = GUEST, reply_to: str = "", edited: bool = False) -> Incoming:
    return Incoming(
        external_id=new_id(),
        address=GROUP,
        sender=Sender(sender, sender),
        at=datetime.now(UTC),
        text=text,
        reply_to=reply_to,
        edited=edited,
    )


WAYS: tuple[Enter, ...] = (
    by_message,
    by_steer_command,
    by_queue_command,
    by_attachment,
    by_reply,
    by_edit,
    from_another_process,
    by_unnamed_sender,
    by_api_key,
    by_goal,
)


@pytest.mark.parametrize("busy", ["queue", "steer"])
@pytest.mark.parametrize("enter", WAYS, ids=lambda way: way.__name__)
async def test_text_of_a_guest_waits_for_a_turn_with_the_rights_of_a_guest(
    tmp_path: Path, enter: Enter, busy: str
) -> None:
    async with serve_group(tmp_path, busy=busy) as here:
        await here.hold()
        await enter(here, "RUN foreign")
        await here.pending("RUN foreign")
        here.say(BOSS, "/steer RUN own")
        await here.pending("RUN own")
        here.released.set()
        await here.answered("HOLD", "RUN foreign")
        assert here.ran("own")
        assert not here.ran("foreign")
        assert here.share_a_turn("HOLD", "RUN own")
        assert not here.share_a_turn("HOLD", "RUN foreign")


@pytest.mark.parametrize("busy", ["queue", "steer"])
async def test_text_of_the_owner_waits_for_a_turn_with_the_rights_of_the_owner(tmp_path: Path, busy: str) -> None:
    async with serve_group(tmp_path, busy=busy) as here:
        await here.hold(GUEST)
        here.say(BOSS, "RUN message")
        here.say(BOSS, "/steer RUN steered")
        here.say(BOSS, "/queue RUN queued")
        for word in ("message", "steered", "queued"):
            await here.pending(f"RUN {word}")
        here.released.set()
        await here.answered("HOLD", "RUN message", "RUN steered", "RUN queued")
        assert all(here.ran(word) for word in ("message", "steered", "queued"))
        assert not any(here.share_a_turn("HOLD", f"RUN {word}") for word in ("message", "steered", "queued"))


async def test_the_owner_steers_their_own_turn_from_the_terminal(tmp_path: Path) -> None:
    async with serve_group(tmp_path) as here:
        await here.hold()
        message = Message(role="user", parts=(Text("RUN attached"),), at=datetime.now(UTC))
        await send_to_session(
            here.gateway.application.store, here.session_id, message, source="cli", sender=OWNER, steering=True
        )
        here.say(BOSS, "/steer RUN own")
        await here.pending("RUN own")
        here.released.set()
        await here.answered("HOLD")
        assert here.ran("attached")
        assert here.share_a_turn("HOLD", "RUN attached")


async def test_the_terminal_does_not_join_the_turn_of_a_guest(tmp_path: Path) -> None:
    async with serve_group(tmp_path) as here:
        await here.hold(GUEST)
        message = Message(role="user", parts=(Text("RUN attached"),), at=datetime.now(UTC))
        await send_to_session(
            here.gateway.application.store, here.session_id, message, source="cli", sender=OWNER, steering=True
        )
        here.say(GUEST, "/steer RUN foreign")
        await here.pending("RUN foreign")
        here.released.set()
        await here.answered("HOLD", "RUN attached")
        assert here.ran("attached")
        assert not here.ran("foreign")
        assert not here.share_a_turn("HOLD", "RUN attached")


async def test_handoff_message_has_no_owner_rights(tmp_path: Path) -> None:
    async with serve_group(tmp_path) as here:
        message = Message(role="user", parts=(Text("RUN handoff"),), at=datetime.now(UTC), author="talaria")
        arrival = make_arrival(here.session_id, "handoff", new_id(), message)
        await here.gateway.application.store.write(lambda tx: tx.inbox.add(arrival))
        here.say(GUEST, "next")
        await here.answered("RUN handoff", "next")
        assert not here.ran("handoff")


async def test_reports_of_background_work_have_the_rights_of_its_starter(tmp_path: Path) -> None:
    def reported(tx: Transaction) -> None:
        for person in (GUEST, BOSS, GUEST):
            origin = Origin("loopback", GROUP.chat_id, user_id=person, sender=chat_sender("loopback", person))
            report(tx, here.session_id, "test", new_id(), f"RUN background_{person}", origin=origin)
        report(tx, here.session_id, "test", new_id(), "RUN background_unknown", origin=Origin(sender=UNKNOWN))
        assert queue_reports(tx, here.session_id)

    async with serve_group(tmp_path) as here:
        await here.gateway.application.store.write(reported)
        here.say(BOSS, "next")
        await here.answered("next", "RUN background_boss", "RUN background_gus", "RUN background_unknown")
        assert here.ran("background_boss")
        assert not here.ran("background_gus")
        assert not here.ran("background_unknown")
        assert not here.share_a_turn("RUN background_boss", "RUN background_gus")


async def test_a_goal_has_the_rights_of_its_author(tmp_path: Path) -> None:
    async with serve_group(tmp_path) as here:
        here.say(GUEST, "/goal RUN wanted")
        await here.answered("RUN wanted")
        here.say(BOSS, "/goal clear")
        assert not here.ran("wanted")
        here.say(BOSS, "/stop")
        here.say(BOSS, "/goal RUN needed")
        await here.answered("RUN needed")
        assert here.ran("needed")


async def test_only_the_person_who_set_a_goal_adds_criteria_to_it(tmp_path: Path) -> None:
    async with serve_group(tmp_path) as here:
        here.say(BOSS, "/goal HOLD")
        async with asyncio.timeout(SECONDS):
            await here.held.wait()
        here.say(GUEST, "/subgoal RUN criterion")
        await here.posted("Only the person who set")
        here.say(BOSS, "/subgoal be quick")
        await here.posted("1. be quick")
        assert not here.ran("criterion")


async def test_guest_cannot_answer_an_approval_of_the_owner(tmp_path: Path) -> None:
    async with serve_group(tmp_path, mode="allow-list") as here:
        here.say(BOSS, "RUN asked")
        await here.network.until(lambda: any(one.buttons for one in here.network.posts))
        (question,) = [one for one in here.network.posts if one.buttons]
        here.network.press(GROUP, question.message_id, question.buttons[0].value, sender=GUEST)
        here.network.press(GROUP, question.message_id, reaction="👍", sender=GUEST)
        here.say(GUEST, "1")
        here.say(GUEST, "/approve always")
        await here.posted("Only the owner")
        await here.gateway.dispatcher.receive(_incoming("1", sender=""))
        assert not here.ran("asked")
        here.network.press(GROUP, question.message_id, question.buttons[0].value, sender=BOSS)
        await here.answered("RUN asked")
        assert here.ran("asked")


async def test_retried_message_has_the_rights_of_its_sender(tmp_path: Path) -> None:
    async with serve_group(tmp_path) as here:
        here.say(GUEST, "RUN foreign")
        await here.answered("RUN foreign")
        here.say(BOSS, "/retry")
        await here.network.until(
            lambda: sum("answered" in one.text and "RUN foreign" in one.text for one in here.network.posts) == 2,
        )
        assert not here.ran("foreign")


async def test_waiting_texts_of_several_people_are_not_merged_after_a_restart(tmp_path: Path) -> None:
    async with serve_group(tmp_path, busy="steer") as here:
        await here.hold()
        for person, word in ((GUEST, "one"), (BOSS, "two"), (GUEST, "three")):
            here.say(person, f"RUN {word}")
            await here.pending(f"RUN {word}")
        turn = here.gateway.chats.find(next(iter(await _keys(here))))
        assert turn is not None
        await turn.active_session.release()  # cut off in the middle of the turn, as by a crash
        await turn.active_session.open()
        here.released.set()
        await here.answered("RUN one", "RUN two", "RUN three")
        assert [here.ran(word) for word in ("one", "two", "three")] == [False, True, False]
        assert not here.share_a_turn("RUN one", "RUN two")


async def _keys(here: ServedGroup) -> list[str]:
    found = await here.gateway.application.store.read(lambda tx: tx.bindings.of_session(here.session_id))
    return [one.key for one in found]
