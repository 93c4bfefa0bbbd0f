"""A money cap never treats a model without a known price as free."""

import json
from pathlib import Path

import pytest
from tests.app.program_with_model import scripted_program, talk

from talaria.testing.model_server import ModelServer

CAPS = ["[budget]\ntotal = 1\n", "[budget]\nperson = 1\n", "[budget]\nsession = 1\n", "[budget]\nturn = 1\n"]


@pytest.mark.parametrize("cap", CAPS, ids=lambda cap: cap.split()[1])
async def test_call_under_a_cap_is_refused_until_the_price_is_set(
    tmp_path: Path, server: ModelServer, cap: str
) -> None:
    program = scripted_program(tmp_path, server, cap)
    refused = await talk(program, "Hello there")
    assert (refused.code, refused.out) == (1, "")
    assert "the price of `scripted` is unknown" in refused.err
    assert "`talaria config set models.scripted.input_price PRICE`" in refused.err
    assert not server.received
    for side in ("input", "output"):
        assert program.run("config", "set", f"models.scripted.{side}_price", "2").code == 0
    assert (await talk(program, "Hello there")).out.strip() == "ok"
    usage = json.loads(program.run("usage", "--by", "model", "--json").out)
    assert [(row["name"], row["unpriced_calls"]) for row in usage] == [("scripted", 0)]


async def test_a_price_of_zero_in_the_settings_means_free(tmp_path: Path, server: ModelServer) -> None:
    free = "[models.scripted]\ninput_price = 0\noutput_price = 0\n"
    program = scripted_program(tmp_path, server, f"{CAPS[0]}{free}")
    assert (await talk(program, "Hello there")).out.strip() == "ok"


async def test_calls_without_a_cap_are_counted_as_unpriced(tmp_path: Path, server: ModelServer) -> None:
    program = scripted_program(tmp_path, server)
    assert (await talk(program, "Hello there")).out.strip() == "ok"
    usage = json.loads(program.run("usage", "--by", "model", "--json").out)
    assert [(row["name"], row["unpriced_calls"]) for row in usage] == [("scripted", 1)]
