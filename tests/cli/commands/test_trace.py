"""`talaria trace`: turns as a tree, as a chart and as JSON, and breaks of the prompt prefix."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest
from tests.app.program import Outcome, Program
from tests.runtime.recorded_turns import TurnHistory

from talaria.cli.commands.trace.command import TraceCommand
from talaria.cli.commands.trace.format import format_seconds, format_tokens
from talaria.cli.commands.trace.svg import iterate_ticks
from talaria.cli.parser import Parser
from talaria.cli.parser_tree import read_parser
from talaria.contracts.stores.sessions import NewSession
from talaria.core.events import TurnFailed, TurnStopped
from talaria.core.messages import Usage
from talaria.observability.trace import estimate_cost
from talaria.settings.profiles import Profiles

SVG = "{http://www.w3.org/2000/svg}"
ZONE = {"TALARIA__CLI__TIME_ZONE": "UTC"}
STYLE = re.compile(r"\x1b\[\d+m")
SMALL = Usage(calls=1, input_tokens=1200, output_tokens=80, cache_read_tokens=1000, cost_microdollars=4_000)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def history(program: Program, title: str = "Night train") -> TurnHistory:
    return TurnHistory(Profiles(program.home).active().database_file, NewSession(source="cli", title=title))


def trace(program: Program, *arguments: str) -> Outcome:
    return program.run("trace", "night", *arguments, env=ZONE)


async def record_two_turns(program: Program) -> None:
    """Record two turns: one with sequential and parallel tools, one that was stopped during a tool."""
    async with history(program) as recorded:
        turn = await recorded.begin()
        await turn.model(1.5, SMALL, first=0.5)
        await turn.tool("read_file", "notes.txt", 0.25)
        one = await turn.begin_tool("web_fetch", "https://trains.test/rome")
        two = await turn.begin_tool("web_search", "night trains")
        recorded.wait(1)
        await turn.end_tool(two, "no network", failed=True)
        recorded.wait(1)
        await turn.end_tool(one)
        await turn.model(4, SMALL)
        await turn.end()
        recorded.wait(60)
        turn = await recorded.begin()
        await turn.model(2, SMALL)
        await turn.begin_tool("terminal", "sleep 100")
        recorded.wait(10)
        await turn.end(TurnStopped())


# the tree


async def test_tree_has_calls_tools_times_tokens_and_cost(program: Program) -> None:
    await record_two_turns(program)
    assert trace(program).out == (
        "TURN                                   TIME  FIRST     IN CACHED    OUT     COST\n"
        "1 answered · 2026-01-02 12:00         7.8 s          2.4k   2.0k    160  $0.0080\n"
        "├─ large                              1.5 s 0.50 s   1.2k   1.0k     80  $0.0040\n"
        "│  ├─ read_file notes.txt            0.25 s  ok\n"
        "│  └─ 2 at once                       2.0 s\n"
        "│     ├─ web_fetch https://trains.…   2.0 s  ok\n"
        "│     └─ web_search night trains      1.0 s  failed: no network\n"
        "└─ large                              4.0 s          1.2k   1.0k     80  $0.0040\n"
        "2 stopped · 2026-01-02 12:01         12.0 s          1.2k   1.0k     80  $0.0040\n"
        "└─ large                              2.0 s          1.2k   1.0k     80  $0.0040\n"
        "   └─ terminal sleep 100             10.0 s  interrupted\n"
        "total · 3 model calls, 4 tools       19.8 s          3.6k   3.0k    240    $0.01\n"
    )


async def test_tree_is_coloured_on_a_terminal_and_fits_its_width(program: Program) -> None:
    await record_two_turns(program)
    shown = program.run_on_terminal("trace", "night", env={**ZONE, "COLUMNS": "64"}).out
    assert "\x1b[32mok\x1b[0m" in shown
    assert "\x1b[31mfailed" in shown
    assert max(len(STYLE.sub("", line)) for line in shown.splitlines()) <= 64
    assert "\x1b" not in trace(program).out


async def test_turn_is_selected_by_number_id_or_from_the_end(program: Program) -> None:
    await record_two_turns(program)
    everything = json.loads(trace(program, "--json").out)
    first, second = everything["turns"]
    for arguments in (["--turn", "1"], ["--turn", first["id"]], ["--turn", first["id"][:-1]]):
        (chosen,) = json.loads(trace(program, "--json", *arguments).out)["turns"]
        assert chosen == first
    last = json.loads(trace(program, "--json", "--last", "1").out)
    assert (last["turns"], last["earlier_turns"]) == ([second], 1)
    assert trace(program, "--last", "1").out.startswith("… 1 earlier turn; --last 2 shows everything\n")


@pytest.mark.parametrize("turn", ["3", "0", "nothing", "", "٣"])
async def test_unknown_turn_is_refused(program: Program, turn: str) -> None:
    await record_two_turns(program)
    refused = trace(program, "--turn", turn)
    assert (refused.code, refused.out) == (1, "")
    assert "this session has turns 1 to 2" in refused.err


async def test_ambiguous_turn_id_is_refused(program: Program) -> None:
    await record_two_turns(program)
    ids = [turn["id"] for turn in json.loads(trace(program, "--json").out)["turns"]]
    common_prefix = next(ids[0][:end] for end in range(len(ids[0]), 0, -1) if ids[1].startswith(ids[0][:end]))
    if common_prefix.isdecimal():
        pytest.skip("the common beginning of the ids reads as a number")
    assert "matches 2 turns" in trace(program, "--turn", common_prefix).err


async def test_session_without_turns_is_reported(program: Program) -> None:
    async with history(program):
        pass
    assert trace(program) == Outcome(0, "", "This session has no turns yet.\n")
    assert json.loads(trace(program, "--json").out)["turns"] == []


def test_unknown_session_is_refused_with_a_hint_to_the_list(program: Program) -> None:
    assert "`talaria sessions list --all`" in trace(program).err


async def test_failure_is_shown_below_its_turn(program: Program) -> None:
    async with history(program) as recorded:
        turn = await recorded.begin()
        await turn.model(1, SMALL)
        await turn.end(TurnFailed("The model's provider refused my key."))
    assert trace(program).out.endswith("└─ The model's provider refused my key.\n")


async def test_running_turn_shows_running_and_interrupted_tools(program: Program) -> None:
    async with history(program) as recorded:
        turn = await recorded.begin()
        await turn.model(1, SMALL)
        await turn.begin_tool("terminal", "make")
        recorded.wait(5)
        await turn.model(2, SMALL)
        await turn.begin_tool("terminal", "make again")
    (shown,) = json.loads(trace(program, "--json").out)["turns"]
    tools = [step for step in shown["steps"] if step["kind"] == "tool"]
    assert [(tool["summary"], tool["state"]) for tool in tools] == [("make", "interrupted"), ("make again", "running")]
    assert tools[0]["seconds"] == 5


async def test_control_characters_of_tools_and_models_are_escaped(program: Program) -> None:
    async with history(program) as recorded:
        turn = await recorded.begin()
        await turn.model(1, SMALL, model="evil\x1b[2J\nmodel")
        await turn.tool("terminal", "a\x1b[2J\nb", 1, failure="c\x1b[2J\nd")
        await turn.end()
    shown = program.run_on_terminal("trace", "night").out
    assert "\x1b[2J" not in shown
    assert shown.count("\n") == 4


async def test_json_has_every_number_even_if_zero(program: Program) -> None:
    await record_two_turns(program)
    data = json.loads(trace(program, "--json").out)
    model, *_ = data["turns"][0]["steps"]
    assert (model["kind"], model["model"], model["seconds"], model["first_text_seconds"]) == (
        "model",
        "large",
        1.5,
        0.5,
    )
    assert set(model["usage"]) == set(data["usage"]) == set(Usage.__struct_fields__)
    assert model["usage"]["cache_write_tokens"] == 0
    assert data["usage"]["cost_microdollars"] == 12_000


def test_session_argument_is_completed_by_the_shell() -> None:
    parser = Parser(prog="talaria trace")
    TraceCommand.add_arguments(parser)
    (session,) = read_parser(("talaria", "trace"), "", parser).positionals
    assert session.completes == "sessions"


@pytest.mark.parametrize("arguments", [["--html", "a", "--svg", "b"], ["--last", "0"], ["--turn", "1", "--last", "2"]])
def test_contradictory_options_are_a_usage_error(program: Program, arguments: list[str]) -> None:
    assert trace(program, *arguments).code == 2


# prefix breaks


async def record_breaks(program: Program) -> None:
    async with history(program) as recorded:
        turn = await recorded.begin()
        await turn.model(1, SMALL)
        await turn.end()
        recorded.wait(60)
        await recorded.break_prefix("the model was changed")
        await recorded.break_prefix("messages 1 to 9 are summarised")
        turn = await recorded.begin()
        await turn.model(
            1, Usage(calls=1, input_tokens=5000, output_tokens=1000, cost_microdollars=20_000), model="new"
        )
        await turn.model(1, SMALL, model="new")
        await turn.end()
        recorded.wait(60)
        await recorded.break_prefix("the tool set changed")


async def test_prefix_breaks_are_listed_with_the_cost_of_the_next_call(program: Program) -> None:
    await record_breaks(program)
    listed = trace(program, "--breaks")
    assert listed.out == (
        "2026-01-02 12:01\tthe model was changed\tnew\t2\t5.0k\t$0.01\n"
        "2026-01-02 12:01\tmessages 1 to 9 are summarised\tnew\t2\t\t\n"
        "2026-01-02 12:02\tthe tool set changed\t\t\t\t\n"
    )
    assert listed.err == "3 prefix breaks: 5.0k tokens were not read from the cache, about $0.01.\n"
    first, second, third = json.loads(trace(program, "--breaks", "--json").out)
    assert (first["tokens"], first["cost_microdollars"], first["step"]) == (5000, 10_000, 1)
    assert (second["tokens"], second["shared"]) == (0, True)
    assert third["turn"] is None


async def test_tree_shows_prefix_breaks_before_their_call(program: Program) -> None:
    await record_breaks(program)
    lines = trace(program).out.splitlines()
    assert lines[3].startswith("2 answered")
    assert lines[4:6] == [
        "├─ prefix break: the model was changed (5.0k tokens, about $0.01)",
        "├─ prefix break: messages 1 to 9 are summarised (included in the break before)",
    ]
    assert lines[8] == "prefix break: the tool set changed (no model call since)"


async def test_session_without_prefix_breaks_lists_none(program: Program) -> None:
    await record_two_turns(program)
    assert trace(program, "--breaks") == Outcome(0, "", "0 prefix breaks.\n")
    assert json.loads(trace(program, "--breaks", "--json").out) == []


async def test_prefix_breaks_are_found_among_many_events(program: Program) -> None:
    async with history(program) as recorded:
        stream = f"session:{recorded.session.id}"
        await recorded.write(lambda tx: tx.events.append(stream, [("other", "")] * 2500))
        await recorded.break_prefix("the model was changed")
    assert len(trace(program, "--breaks").out.splitlines()) == 1


def test_cost_of_a_prefix_break_is_a_part_of_the_call_cost() -> None:
    assert estimate_cost(Usage(1, 5000, 1000, cost_microdollars=20_000)) == 10_000
    assert estimate_cost(Usage(1, 5000, 0, cost_microdollars=20_000)) == 20_000
    assert estimate_cost(Usage(1, 5000, 0, 5000, cost_microdollars=2_000)) == 0
    assert estimate_cost(Usage()) == 0


# the chart


async def test_chart_has_a_bar_and_numbers_for_every_step(program: Program) -> None:
    await record_two_turns(program)
    root = fromstring(trace(program, "--svg", "-").out)
    assert root.tag == f"{SVG}svg"
    titles = [group.findtext(f"{SVG}title") for group in root.iter(f"{SVG}g")]
    first, second, *others = titles
    assert first == "large\n1.5 s · first text after 0.50 s · 1.2k in (1.0k cached), 80 out · $0.0040 · context 1200"
    assert second == "large\n4.0 s · 1.2k in (1.0k cached), 80 out · $0.0040 · context 1200"
    assert "web_search night trains\n1.0 s · failed: no network" in others
    assert len(others) == 5
    labels = [text.text for text in root.iter(f"{SVG}text")]
    assert [label for label in labels if label in {"model", "tools"}] == ["model", "tools"] * 2
    assert {"0 s", "7 s", "10 s"} <= set(labels)


async def test_parallel_tools_are_drawn_on_separate_lanes(program: Program) -> None:
    await record_two_turns(program)
    root = fromstring(trace(program, "--svg", "-", "--turn", "1").out)
    tools = [bar for bar in bars(root) if bar.get("class") in {"ok", "failed"}]
    assert len({bar.get("y") for bar in tools}) == 2
    for one in bars(root):
        assert 0 <= float(one.get("x", "")) <= float(one.get("x", "")) + float(one.get("width", "")) <= 1000


async def test_chart_shows_prefix_breaks(program: Program) -> None:
    await record_breaks(program)
    root = fromstring(trace(program, "--svg", "-").out)
    titles = [group.findtext(f"{SVG}title") or "" for group in root.iter(f"{SVG}g")]
    assert [title for title in titles if title.startswith("prefix break")] == [
        "prefix break: the model was changed\n5.0k tokens, about $0.01",
        "prefix break: messages 1 to 9 are summarised\nincluded in the break before",
    ]


async def test_html_page_loads_no_external_resources(program: Program) -> None:
    await record_two_turns(program)
    page = trace(program, "--html", "-").out
    assert page.startswith("<!DOCTYPE html>")
    assert "prefers-color-scheme: dark" in page
    assert re.findall(r"https?://[^\s\"<&]+", re.sub(r"https://trains\.test/\w+", "", page)) == [
        "http://www.w3.org/2000/svg"
    ]
    assert not re.search(r"<script|<link|<img|@import|url\(", page)
    assert fromstring(page[page.index("<svg") : page.index("</svg>") + 6]).tag == f"{SVG}svg"


async def test_texts_are_escaped_in_the_chart(program: Program) -> None:
    title = 'Night <script>alert(1)</script> & "more" \x00\x1b\ufffe\''
    async with history(program, title) as recorded:
        turn = await recorded.begin()
        await turn.model(1, SMALL, model="<b>&amp;")
        await turn.tool("terminal", "echo '<&>' \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"), 1)
        await turn.end(TurnFailed("</text>]]>"))
    for form in ("--svg", "--html"):
        text = trace(program, form, "-").out
        assert "<script" not in text
        root = fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
        labels = [one.text or "" for one in root.iter(f"{SVG}text")]
        assert "<b>&amp;" in labels
        assert any("</text>]]>" in label for label in labels)
        assert any('<script>alert(1)</script> & "more"' in label for label in labels)


async def test_existing_chart_file_is_replaced_only_with_force(program: Program, tmp_path: Path) -> None:
    await record_two_turns(program)
    target = tmp_path / "trace.svg"
    assert trace(program, "--svg", str(target)).err == f"Wrote the timeline of 2 turns to {target}.\n"
    drawn = target.read_text()
    target.write_text("mine")
    refused = trace(program, "--svg", str(target))
    assert (refused.code, target.read_text()) == (1, "mine")
    assert "--force" in refused.err
    assert trace(program, "--svg", str(target), "--force").code == 0
    assert target.read_text() == drawn


async def test_empty_and_instant_turns_can_be_drawn(program: Program) -> None:
    async with history(program) as recorded:
        turn = await recorded.begin()
        await turn.end()
        turn = await recorded.begin()
        await turn.model(0, SMALL, first=0.0)
        await turn.end()
    assert trace(program).out.count("answered") == 2
    assert len(list(bars(fromstring(trace(program, "--svg", "-").out)))) == 1


def bars(root: Element) -> Iterator[Element]:
    """Yield the bars, without the samples of the legend."""
    return (bar for group in root.iter(f"{SVG}g") for bar in group.iter(f"{SVG}rect"))


# numbers


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0.00 s"), (0.25, "0.25 s"), (1.25, "1.2 s"), (59.94, "59.9 s"), (59.96, "1m00s"), (754.6, "12m35s"),
     (3599.7, "1h00m"), (7500, "2h05m")],
)  # fmt: skip
def test_seconds_are_formatted_shortly(seconds: float, shown: str) -> None:
    assert format_seconds(seconds) == shown


@pytest.mark.parametrize(("tokens", "shown"), [(0, "0"), (999, "999"), (1000, "1.0k"), (999_999, "1.0M")])
def test_token_counts_are_formatted_shortly(tokens: int, shown: str) -> None:
    assert format_tokens(tokens) == shown


@pytest.mark.parametrize("seconds", [0.001, 0.03, 0.9, 1, 7.75, 12.55, 100, 3600, 99_999])
def test_axis_has_a_few_round_numbers(seconds: float) -> None:
    marks = list(iterate_ticks(seconds))
    assert marks[0][0] == 0
    assert 2 <= len(marks) <= 9
    assert len({label for _, label in marks}) == len(marks)
    assert marks[-1][0] <= seconds + 1e-6
