"""Corpora: no way of deleting the home runs silently, and everyday commands run without a question."""

from pathlib import Path

import msgspec
import pytest
from tests.agent.approval.test_policy import judge

from talaria.agent.approval.policy import Allow, Deny

HERE = Path(__file__).parent
DELETIONS = msgspec.json.decode((HERE / "deletion_forms.json").read_bytes(), type=list[str])
EVASIONS = msgspec.json.decode((HERE / "evasions.json").read_bytes(), type=list[str])
EVERYDAY = (HERE / "everyday_commands.txt").read_text().splitlines()
_BODIES = {"EOF": "\nsome text; rm -rf / is only text\nEOF"}


@pytest.mark.parametrize("command", DELETIONS)
def test_no_deletion_of_the_home_folder_runs_without_a_question(command: str) -> None:
    assert judge(command) != Allow()


@pytest.mark.parametrize("command", EVASIONS)
def test_evasions_are_asked_about_or_refused(command: str) -> None:
    assert judge(command) != Allow()


def test_corpus_of_deletions_has_at_least_180_forms() -> None:
    assert len(set(DELETIONS)) >= 180


@pytest.mark.parametrize(
    "target",
    [
        "~",
        "//homes/person",
        "/proc/self/root/homes/person",
        "/homes/person/./",
        "~/../person",
        "/",
        "///",
        "/proc/self/root/",
    ],
)
def test_deletion_of_the_home_under_unusual_spellings_is_refused_in_every_mode(target: str) -> None:
    assert isinstance(judge(f"rm -rf {target}", mode="off"), Deny)
    assert isinstance(judge(f"echo ${{x:-$(rm -rf {target})}}", mode="off"), Deny)


@pytest.mark.parametrize("device", ["/dev/sda", "//dev/sda", "/proc/self/root/dev/nvme0n1"])
def test_writing_to_a_block_device_is_refused_in_every_mode(device: str) -> None:
    assert isinstance(judge(f"cat x > {device}", mode="off"), Deny)


def test_everyday_commands_run_without_a_question() -> None:
    commands = [f"{one}{_BODIES['EOF']}" if "<<" in one else one for one in EVERYDAY]
    asked = {one: judge(one) for one in commands if judge(one) != Allow()}
    assert len(commands) >= 300
    assert len(asked) <= 0.05 * len(commands), "\n".join(f"{one}: {why}" for one, why in asked.items())
