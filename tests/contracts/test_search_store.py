"""Full-text search: the same on every engine, and on SQLite the same before and after indexing."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.contracts.sample_messages import said

from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import Hit, NewSession, SearchQuery, Viewer
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult
from talaria.testing.clock import NOON

Tell = Callable[..., SessionId]
Find = Callable[..., list[Hit]]


@pytest.fixture(params=["fresh", "indexed"])
def find(request: pytest.FixtureRequest, database: Database) -> Find:
    """Searches what is stored: as it is, and when all of it is indexed."""

    def find(text: str, **filters: object) -> list[Hit]:
        while request.param == "indexed" and database.write(lambda tx: tx.search.catch_up()):
            pass
        return database.read(lambda tx: tx.search.find(SearchQuery(text=text, **filters)))  # type: ignore[arg-type]

    return find


@pytest.fixture
def tell(database: Database) -> Tell:
    """Starts a session in which some texts are said."""

    def tell(*texts: str, source: str = "cli", owner: str = "", audience: str = "") -> SessionId:
        def work(tx: Transaction) -> SessionId:
            new = NewSession(source=source, owner=owner, audience=audience, title="Talk")
            session = tx.sessions.create(new).id
            tx.messages.append(session, [said(text) for text in texts])
            return session

        return database.write(work)

    return tell


def places(hits: Sequence[Hit]) -> list[int]:
    """Return where the hits stand in their session, in the order of the transcript."""
    return sorted(hit.seq for hit in hits)


def test_a_hit_says_where_it_stands(tell: Tell, find: Find) -> None:
    session = tell("nothing here", "the otter sleeps")
    [hit] = find("otter")
    assert (hit.session_id, hit.session_title, hit.seq, hit.role, hit.at) == (session, "Talk", 2, "user", NOON)
    assert hit.snippet == "the [otter] sleeps"


def test_all_words_must_occur(tell: Tell, find: Find) -> None:
    tell("red fox", "red hen", "the fox is red")
    assert places(find("red fox")) == [1, 3]


def test_case_accents_and_endings_do_not_matter(tell: Tell, find: Find) -> None:
    tell("Crème brûlée", "She was walking to the shops", "ΑΘΗΝΑ", "Москва")
    assert places(find("creme BRULEE")) == [1]
    assert places(find("walked shop")) == [2]
    assert places(find("αθηνα")) == [3]
    assert places(find("москва")) == [4]


def test_quotes_make_a_phrase(tell: Tell, find: Find) -> None:
    tell("black coffee please", "coffee, black", "black, strong coffee")
    assert places(find('"black coffee"')) == [1]
    assert places(find('"black coffee')) == [1]


def test_a_star_makes_a_prefix(tell: Tell, find: Find) -> None:
    tell("telegram", "telephone", "tele", "stele")
    assert places(find("tele*")) == [1, 2, 3]
    assert places(find("telegr*")) == [1]


def test_a_minus_excludes(tell: Tell, find: Find) -> None:
    tell("tea with milk", "tea with lemon", "tea")
    assert places(find("tea -milk")) == [2, 3]
    assert places(find('tea -"with lemon" -milk')) == [3]


def test_or_gives_a_choice(tell: Tell, find: Find) -> None:
    tell("green tea", "black coffee", "green coffee", "water")
    assert places(find("tea OR coffee")) == [1, 2, 3]
    assert places(find("green tea OR coffee")) == [1, 3]


def test_operators_without_meaning_are_left_out(tell: Tell, find: Find) -> None:
    tell("tea", "or not")
    assert places(find("OR tea")) == []
    assert places(find("tea OR")) == [1]
    assert places(find("tea -")) == [1]
    assert places(find("tea *")) == [1]
    assert places(find('tea ""')) == [1]


@pytest.mark.parametrize("text", ["", "   ", "-", '"', "***", "-milk", "...", "\x00", "()", "\u200b"])
def test_text_without_a_word_to_look_for_finds_nothing(tell: Tell, find: Find, text: str) -> None:
    tell("tea", "milk")
    assert find(text) == []


def test_punctuation_inside_words_is_no_hindrance(tell: Tell, find: Find) -> None:
    tell("see src/talaria/app/main.py", "mail ana@example.test", "it's 3.14", "C++ and C#")
    assert places(find("talaria/app")) == [1]
    assert places(find("main.py")) == [1]
    assert places(find("ana@example.test")) == [2]
    assert places(find("it's")) == [3]
    assert places(find("3.14")) == [3]
    assert places(find("C++")) == [4]


SCRIPTS = {
    "chinese": ("我们明天去北京看长城", ["北京", "长城", "明天", "京", "去北京", "我们明天"]),
    "japanese": ("今日は東京タワーへ行きました", ["東京", "タワー", "は", "今日", "行きました"]),
    "korean": ("저는 학교에서 공부합니다", ["학교", "공부", "저", "학교에서"]),
    "thai": ("ฉันกินข้าวที่บ้าน", ["กิน", "ข้าว", "บ้าน"]),
    "emoji": ("done 🎉 at last ❤️\u200d🔥", ["🎉", "❤️", "❤", "❤️\u200d🔥", "❤🔥"]),
    "mixed": ("用 Python 写的bot不错", ["python", "写", "bot", "不错"]),
    "full width": ("\uff21\uff22\uff23 \uff11\uff12\uff13 ｶﾞ", ["abc", "123", "ガ"]),
    "rare": ("𠮷野家で食べた", ["𠮷", "𠮷野家"]),
    "hindi": ("मैं घर जा रहा हूँ", ["घर", "रहा"]),
    "arabic": ("أنا ذاهب إلى المدرسة", ["المدرسة"]),
    "khmer": ("ខ្ញុំទៅផ្សារ", ["ផ្សារ"]),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_words_of_every_script_are_found(tell: Tell, find: Find, script: str) -> None:
    text, words = SCRIPTS[script]
    tell("something else", text)
    assert {word: places(find(word)) for word in words} == {word: [2] for word in words}


def test_words_that_do_not_stand_there_are_not_found(tell: Tell, find: Find) -> None:
    tell("我们明天去北京", "저는 학교에서", "done 🎉")
    assert [find(word) for word in ("京北", "明北", "교학", "🎂", "don")] == [[]] * 5


def test_a_snippet_shows_the_words_around_the_match(tell: Tell, find: Find) -> None:
    tell(" ".join([*(f"before{n}" for n in range(50)), "the", "silver", "otter", *(f"after{n}" for n in range(50))]))
    [hit] = find("silver otter")
    assert "[silver] [otter]" in hit.snippet
    assert len(hit.snippet.split()) < 40


def test_a_snippet_keeps_the_text_of_other_scripts_whole(tell: Tell, find: Find) -> None:
    tell("我们明天去北京看长城")
    [hit] = find("北京")
    assert hit.snippet == "我们明天去[北京]看长城"


def test_brackets_of_the_text_stay_in_the_snippet(tell: Tell, find: Find) -> None:
    tell("a [draft] of the plan")
    [hit] = find("plan")
    assert hit.snippet == "a [draft] of the [plan]"


def test_the_end_of_a_long_message_is_found_and_shown(tell: Tell, find: Find) -> None:
    tell("filler words " * 10_000 + "and an otter at the end")
    [hit] = find("otter")
    assert "[otter]" in hit.snippet


def test_the_best_match_comes_first(tell: Tell, find: Find) -> None:
    tell("otter " + "and many other words " * 30, "otter otter otter", "a talk of other animals, among them an otter")
    hits = find("otter")
    assert hits[0].seq == 2
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_no_more_is_returned_than_asked_for(tell: Tell, find: Find) -> None:
    tell(*(f"otter {number}" for number in range(30)))
    assert len(find("otter")) == 20
    assert len(find("otter", limit=3)) == 3


def test_hits_are_filtered_by_session_source_and_owner(tell: Tell, find: Find) -> None:
    one = tell("otter", source="cli", owner="ana")
    two = tell("otter", source="telegram", owner="ben")
    three = tell("otter", source="telegram")
    found = {
        "session": find("otter", session_id=one),
        "source": find("otter", source="telegram"),
        "owner": find("otter", owner="ben"),
        "nobody": find("otter", owner=""),
        "both": find("otter", source="telegram", owner="ana"),
    }
    assert {name: {hit.session_id for hit in hits} for name, hits in found.items()} == {
        "session": {one},
        "source": {two, three},
        "owner": {two},
        "nobody": {three},
        "both": set(),
    }


def test_hits_are_filtered_by_who_looks_and_who_reads_along(tell: Tell, find: Find, database: Database) -> None:
    private = tell("otter", owner="ana")
    told = tell("otter", owner="ana", audience="telegram/9")
    tell("otter", owner="ben", audience="telegram/9")
    tell("otter")
    for _ in ("indexed later", "indexed"):
        assert {hit.session_id for hit in find("otter", seen_by=Viewer("ana"))} == {private, told}
        assert {hit.session_id for hit in find('"otter"', seen_by=Viewer("ana", "telegram/9"))} == {told}
        assert find("otter", seen_by=Viewer("ana", "telegram/8")) == []
        assert find("otter", seen_by=Viewer("ana", "telegram/9"), session_id=private) == []
        database.write(lambda tx: tx.search.catch_up())


def test_hits_are_filtered_by_role_and_time(mine: Transaction, tell: Tell, find: Find) -> None:
    session = tell()
    hour = timedelta(hours=1)
    mine.messages.append(
        session,
        [said("otter", "user", NOON), said("otter", "assistant", NOON + hour), said("otter", "tool", NOON + 2 * hour)],
    )
    assert places(find("otter", role="assistant")) == [2]
    assert places(find("otter", since=NOON + hour)) == [2, 3]
    assert places(find("otter", until=NOON + hour)) == [1]
    assert places(find("otter", since=NOON + hour, until=NOON + 2 * hour)) == [2]


def test_what_was_said_and_what_tools_answered_is_found_and_nothing_else(
    mine: Transaction, tell: Tell, find: Find
) -> None:
    session = tell()
    parts = (
        Text("spoken"),
        ToolResult("1", "answered"),
        Reasoning("thought"),
        ToolCall("1", "called", '{"a": "argument"}'),
        Image("pictured"),
        File("filed", "named"),
    )
    mine.messages.append(session, [Message(role="assistant", parts=parts, at=NOON)])
    words = ("spoken", "answered", "thought", "called", "argument", "pictured", "filed", "named", "parts", "text")
    assert [word for word in words if find(word)] == ["spoken", "answered"]


def test_what_is_deleted_is_not_found(mine: Transaction, tell: Tell, find: Find) -> None:
    gone, stays = tell("otter"), tell("otter")
    assert len(find("otter")) == 2
    mine.sessions.delete(gone)
    assert [hit.session_id for hit in find("otter")] == [stays]
    tell("otter", "otter")
    assert len(find("otter")) == 3


def test_a_branch_that_outlived_its_parent_is_found_with_its_past(mine: Transaction, tell: Tell, find: Find) -> None:
    parent = tell("an otter", "a heron")
    branch = mine.sessions.create(NewSession(source="cli", parent_id=parent, parent_seq=1)).id
    find("otter")
    mine.sessions.delete(parent)
    assert [(hit.session_id, hit.seq) for hit in find("otter")] == [(branch, 1)]
    assert find("heron") == []


def test_catching_up_indexes_as_many_as_asked_for(mine: Transaction, tell: Tell, place_is_sqlite: bool) -> None:
    tell(*(f"otter {number}" for number in range(5)))
    expected = [2, 2, 1, 0] if place_is_sqlite else [0, 0, 0, 0]
    assert [mine.search.catch_up(2) for _ in range(4)] == expected


@pytest.fixture
def place_is_sqlite(request: pytest.FixtureRequest) -> bool:
    return bool(request.getfixturevalue("place").engine == "sqlite")


def test_half_indexed_text_is_found_once(mine: Transaction, tell: Tell, database: Database) -> None:
    tell(*(f"otter {number}" for number in range(5)))
    mine.search.catch_up(2)
    hits = database.read(lambda tx: tx.search.find(SearchQuery(text="otter")))
    assert places(hits) == [1, 2, 3, 4, 5]


ANYTHING = st.one_of(
    st.text(st.characters(exclude_categories=[])),
    st.text("abc -+*\"'()[]{}:^~|&!\\/<>@#OR AND NOT NEAR"),
    st.lists(
        st.sampled_from(["tea", '"', "OR", "AND", "NOT", "NEAR(", "-", "*", ":*", "<->", "!", "🎉", "京", "\x00"])
    ).map(" ".join),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(text=ANYTHING)
@example("\udcff")
@example("tea \ud800")
@example("x" * 5_000)
@example("x" * 3_000 + "*")
@example("京" * 2_000)
@example(" ".join(f"word{number}" for number in range(2_000)))
@example(" OR ".join(f"word{number}" for number in range(2_000)))
@example(" -".join(f"word{number}" for number in range(2_000)))
@example('"' + " ".join(f"word{number}" for number in range(2_000)) + '"')
def test_no_text_makes_search_raise(tell: Tell, find: Find, text: str) -> None:
    find(text)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_any_text_is_stored_and_searched(tell: Tell, find: Find, text: str) -> None:
    session = tell(f"otter {text}")
    assert [hit.session_id for hit in find("otter", session_id=session)] == [session]
