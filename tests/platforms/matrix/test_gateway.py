"""The gateway on Matrix: the process, the adapter and a real homeserver."""

from pathlib import Path

from tests.app.program_with_model import scripted_program
from tests.platforms.matrix.matrix_clients import BotAccount, Person
from tests.system.handoff_fixture import GREETING, answer
from tests.system.test_gateway_process import running
from tests.system.test_handoff_networks import hand_off

from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until


async def test_invitation_of_an_allowed_sender_is_accepted_and_answered(
    tmp_path: Path, server: ModelServer, bot_account: BotAccount, alice: Person, carol: Person
) -> None:
    program = scripted_program(
        tmp_path / "home",
        server,
        f'[access]\nallowed = ["matrix:{alice.user_id}"]\n[platforms.matrix.options]\nuser = "{bot_account.user_id}"\n'
        'poll = "PT2S"\n',
        f"MATRIX_HOMESERVER={bot_account.settings.homeserver}\nMATRIX_PASSWORD={bot_account.account.password}\n",
    )
    server.answering(lambda received: Say(f"re: {received.question}"))
    strangers_room, allowed_room = carol.room_with(bot_account.user_id), alice.room_with(bot_account.user_id)
    async with running(program):
        await until(lambda: bot_account.user_id in alice.members(allowed_room))
        alice.say(allowed_room, "hello")
        await until(lambda: "re: hello" in str(alice.events(allowed_room)))
    assert bot_account.user_id not in carol.members(strangers_room)
    login = tmp_path / "home" / "profiles" / "default" / "platforms" / "matrix" / "login.json"
    assert login.stat().st_mode & 0o777 == 0o600
    assert bot_account.account.password not in login.read_text()


async def test_session_is_handed_off_to_a_new_thread(
    tmp_path: Path, server: ModelServer, bot_account: BotAccount, alice: Person
) -> None:
    program = scripted_program(
        tmp_path / "home",
        server,
        f'[access]\nowners = ["matrix:{alice.user_id}"]\n[platforms.matrix.options]\nuser = "{bot_account.user_id}"\n'
        'poll = "PT2S"\n',
        f"MATRIX_HOMESERVER={bot_account.settings.homeserver}\nMATRIX_PASSWORD={bot_account.account.password}\n",
    )
    server.answering(answer)
    room = alice.room_with(bot_account.user_id)
    async with running(program):
        await until(lambda: bot_account.user_id in alice.members(room))
        alice.say(room, "/sethome")
        await until(lambda: "my home chat on Matrix" in str(alice.events(room)))
        address = await hand_off(program, "matrix")
        relation = {"rel_type": "m.thread", "event_id": address.thread_id, "is_falling_back": True}
        await until(lambda: in_thread(alice, room, address.thread_id) == [GREETING])
        alice.say(room, "and now?", **{"m.relates_to": relation, "m.mentions": {}})
        await until(lambda: in_thread(alice, room, address.thread_id)[1:] == ["and now?", "re: and now?"])
    assert address.chat_id == room
    assert alice.event(room, address.thread_id)["content"]["body"] == "The boat"
    assert "Build a boat." in server.received[-1].body.decode()


def in_thread(person: Person, room: str, thread: str) -> list[str]:
    """Return the texts of the messages in a thread after their last edit."""
    texts: dict[str, str] = {}
    for event in person.events(room):
        content, relation = event["content"], event["content"].get("m.relates_to", {})
        if relation.get("event_id") == thread:
            texts[event["event_id"]] = content["body"]
        elif relation.get("event_id") in texts:
            texts[relation["event_id"]] = content["m.new_content"]["body"]
    return list(texts.values())
