"""The gateway on Matrix: the process, the adapter and a real homeserver."""

from pathlib import Path

from tests.app.scripted import scripted_program
from tests.gateway.test_gateway import running
from tests.platforms.matrix.people import Desk, Person, until

from talaria.testing.model_server import ModelServer, Say


async def test_who_may_speak_invites_it_and_is_answered(
    tmp_path: Path, server: ModelServer, desk: Desk, alice: Person, carol: Person
) -> None:
    program = scripted_program(
        tmp_path / "home",
        server,
        f'[access]\nallowed = ["matrix:{alice.user_id}"]\n[platforms.matrix.options]\nuser = "{desk.user_id}"\n'
        'poll = "PT2S"\n',
        f"MATRIX_HOMESERVER={desk.settings.homeserver}\nMATRIX_PASSWORD={desk.account.password}\n",
    )
    server.answering(lambda received: Say(f"re: {received.question}"))
    strange, known = carol.room_with(desk.user_id), alice.room_with(desk.user_id)
    async with running(program):
        await until(lambda: desk.user_id in alice.members(known))
        alice.say(known, "hello")
        await until(lambda: "re: hello" in str(alice.events(known)))
    assert desk.user_id not in carol.members(strange)
    login = tmp_path / "home" / "profiles" / "default" / "platforms" / "matrix" / "login.json"
    assert login.stat().st_mode & 0o777 == 0o600
    assert desk.account.password not in login.read_text()
