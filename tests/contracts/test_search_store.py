"""Full-text search: the same on every engine, and on SQLite the same before and after indexing."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.contracts.sample_messages import text_message

from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import Hit, NewSession, SearchQuery, Viewer
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image, Message, Reasoning, Text, ToolCall, ToolResult
from talaria.testing.clock import NOON

StartSession = Callable[..., SessionId]
Find = Callable[..., list[Hit]]


@pytest.fixture(params=["fresh", "indexed"])
def find(request: pytest.FixtureRequest, database: Database) -> Find:
    """Searches the store: before and after indexing."""

    def find(text: str, **filters: object) -> list[Hit]:
        while request.param == "indexed" and database.write(lambda tx: tx.search.catch_up()):
            pass
        return database.read(lambda tx: tx.search.find(SearchQuery(text=text, **filters)))  # type: ignore[arg-type]

    return find


@pytest.fixture
def start_session(database: Database) -> StartSession:
    """Starts a session with messages."""

    def start_session(*texts: str, source: str = "cli", owner: str = "", audience: str = "") -> SessionId:
        def work(tx: Transaction) -> SessionId:
            new = NewSession(source=source, owner=owner, audience=audience, title="Talk")
            session = tx.sessions.create(new).id
            tx.messages.append(session, [text_message(text) for text in texts])
            return session

        return database.write(work)

    return start_session


def numbers(hits: Sequence[Hit]) -> list[int]:
    """Return the message numbers of the hits in the order of the transcript."""
    return sorted(hit.seq for hit in hits)


def test_hit_names_session_message_and_snippet(start_session: StartSession, find: Find) -> None:
    session = start_session("nothing here", "the otter sleeps")
    [hit] = find("otter")
    assert (hit.session_id, hit.session_title, hit.seq, hit.role, hit.at) == (session, "Talk", 2, "user", NOON)
    assert hit.snippet == "the [otter] sleeps"


def test_hit_contains_all_searched_words(start_session: StartSession, find: Find) -> None:
    start_session("red fox", "red hen", "the fox is red")
    assert numbers(find("red fox")) == [1, 3]


def test_case_accents_and_endings_do_not_matter(start_session: StartSession, find: Find) -> None:
    start_session("Crème brûlée", "She was walking to the shops", "ΑΘΗΝΑ", "Москва")
    assert numbers(find("creme BRULEE")) == [1]
    assert numbers(find("walked shop")) == [2]
    assert numbers(find("αθηνα")) == [3]
    assert numbers(find("москва")) == [4]


def test_quoted_words_are_searched_as_a_phrase(start_session: StartSession, find: Find) -> None:
    start_session("black coffee please", "coffee, black", "black, strong coffee")
    assert numbers(find('"black coffee"')) == [1]
    assert numbers(find('"black coffee')) == [1]


def test_trailing_star_searches_a_prefix(start_session: StartSession, find: Find) -> None:
    start_session("telegram", "telephone", "tele", "stele")
    assert numbers(find("tele*")) == [1, 2, 3]
    assert numbers(find("telegr*")) == [1]


def test_minus_excludes_a_word_or_phrase(start_session: StartSession, find: Find) -> None:
    start_session("tea with milk", "tea with lemon", "tea")
    assert numbers(find("tea -milk")) == [2, 3]
    assert numbers(find('tea -"with lemon" -milk')) == [3]


def test_or_finds_either_word(start_session: StartSession, find: Find) -> None:
    start_session("green tea", "black coffee", "green coffee", "water")
    assert numbers(find("tea OR coffee")) == [1, 2, 3]
    assert numbers(find("green tea OR coffee")) == [1, 3]


def test_operators_without_operand_are_ignored(start_session: StartSession, find: Find) -> None:
    start_session("tea", "or not")
    assert numbers(find("OR tea")) == []
    assert numbers(find("tea OR")) == [1]
    assert numbers(find("tea -")) == [1]
    assert numbers(find("tea *")) == [1]
    assert numbers(find('tea ""')) == [1]


@pytest.mark.parametrize("text", ["", "   ", "-", '"', "***", "-milk", "...", "\x00", "()", "\u200b"])
def test_query_without_searchable_words_finds_nothing(start_session: StartSession, find: Find, text: str) -> None:
    start_session("tea", "milk")
    assert find(text) == []


def test_words_with_punctuation_are_found(start_session: StartSession, find: Find) -> None:
    start_session("see src/talaria/app/main.py", "mail ana@example.test", "it's 3.14", "C++ and C#")
    assert numbers(find("talaria/app")) == [1]
    assert numbers(find("main.py")) == [1]
    assert numbers(find("ana@example.test")) == [2]
    assert numbers(find("it's")) == [3]
    assert numbers(find("3.14")) == [3]
    assert numbers(find("C++")) == [4]


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
def test_words_of_every_script_are_found(start_session: StartSession, find: Find, script: str) -> None:
    text, words = SCRIPTS[script]
    start_session("something else", text)
    assert {word: numbers(find(word)) for word in words} == {word: [2] for word in words}


def test_absent_words_are_not_found(start_session: StartSession, find: Find) -> None:
    start_session("我们明天去北京", "저는 학교에서", "done 🎉")
    assert [find(word) for word in ("京北", "明北", "교학", "🎂", "don")] == [[]] * 5


def test_a_snippet_shows_the_words_around_the_match(start_session: StartSession, find: Find) -> None:
    start_session(
        " ".join([*(f"before{n}" for n in range(50)), "the", "silver", "otter", *(f"after{n}" for n in range(50))])
    )
    [hit] = find("silver otter")
    assert "[silver] [otter]" in hit.snippet
    assert len(hit.snippet.split()) < 40


def test_snippet_does_not_split_text_of_other_scripts(start_session: StartSession, find: Find) -> None:
    start_session("我们明天去北京看长城")
    [hit] = find("北京")
    assert hit.snippet == "我们明天去[北京]看长城"


def test_snippet_contains_brackets_of_the_text(start_session: StartSession, find: Find) -> None:
    start_session("a [draft] of the plan")
    [hit] = find("plan")
    assert hit.snippet == "a [draft] of the [plan]"


def test_the_end_of_a_long_message_is_found_and_shown(start_session: StartSession, find: Find) -> None:
    start_session("filler words " * 10_000 + "and an otter at the end")
    [hit] = find("otter")
    assert "[otter]" in hit.snippet


def test_the_best_match_comes_first(start_session: StartSession, find: Find) -> None:
    start_session(
        "otter " + "and many other words " * 30, "otter otter otter", "a talk of other animals, among them an otter"
    )
    hits = find("otter")
    assert hits[0].seq == 2
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_search_returns_at_most_the_limit(start_session: StartSession, find: Find) -> None:
    start_session(*(f"otter {number}" for number in range(30)))
    assert len(find("otter")) == 20
    assert len(find("otter", limit=3)) == 3


def test_hits_are_filtered_by_session_source_and_owner(start_session: StartSession, find: Find) -> None:
    one = start_session("otter", source="cli", owner="ana")
    two = start_session("otter", source="telegram", owner="ben")
    three = start_session("otter", source="telegram")
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


def test_hits_are_filtered_by_viewer_and_audience(start_session: StartSession, find: Find, database: Database) -> None:
    private = start_session("otter", owner="ana")
    shared = start_session("otter", owner="ana", audience="telegram/9")
    start_session("otter", owner="ben", audience="telegram/9")
    start_session("otter")
    for _ in ("indexed later", "indexed"):
        assert {hit.session_id for hit in find("otter", seen_by=Viewer("ana"))} == {private, shared}
        assert {hit.session_id for hit in find('"otter"', seen_by=Viewer("ana", "telegram/9"))} == {shared}
        assert find("otter", seen_by=Viewer("ana", "telegram/8")) == []
        assert find("otter", seen_by=Viewer("ana", "telegram/9"), session_id=private) == []
        database.write(lambda tx: tx.search.catch_up())


def test_hits_are_filtered_by_role_and_time(mine: Transaction, start_session: StartSession, find: Find) -> None:
    session = start_session()
    hour = timedelta(hours=1)
    mine.messages.append(
        session,
        [
            text_message("otter", "user", NOON),
            text_message("otter", "assistant", NOON + hour),
            text_message("otter", "tool", NOON + 2 * hour),
        ],
    )
    assert numbers(find("otter", role="assistant")) == [2]
    assert numbers(find("otter", since=NOON + hour)) == [2, 3]
    assert numbers(find("otter", until=NOON + hour)) == [1]
    assert numbers(find("otter", since=NOON + hour, until=NOON + 2 * hour)) == [2]


def test_only_text_and_tool_results_are_searched(mine: Transaction, start_session: StartSession, find: Find) -> None:
    session = start_session()
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


def test_deleted_messages_are_not_found(mine: Transaction, start_session: StartSession, find: Find) -> None:
    gone, stays = start_session("otter"), start_session("otter")
    assert len(find("otter")) == 2
    mine.sessions.delete(gone)
    assert [hit.session_id for hit in find("otter")] == [stays]
    start_session("otter", "otter")
    assert len(find("otter")) == 3


def test_branch_of_a_deleted_parent_is_found_with_the_parents_messages(
    mine: Transaction, start_session: StartSession, find: Find
) -> None:
    parent = start_session("an otter", "a heron")
    branch = mine.sessions.create(NewSession(source="cli", parent_id=parent, parent_seq=1)).id
    find("otter")
    mine.sessions.delete(parent)
    assert [(hit.session_id, hit.seq) for hit in find("otter")] == [(branch, 1)]
    assert find("heron") == []


def test_catch_up_indexes_the_requested_number_of_messages(
    mine: Transaction, start_session: StartSession, is_sqlite: bool
) -> None:
    start_session(*(f"otter {number}" for number in range(5)))
    expected = [2, 2, 1, 0] if is_sqlite else [0, 0, 0, 0]
    assert [mine.search.catch_up(2) for _ in range(4)] == expected


@pytest.fixture
def is_sqlite(request: pytest.FixtureRequest) -> bool:
    return bool(request.getfixturevalue("store_location").engine == "sqlite")


def test_partly_indexed_messages_are_each_found_once(
    mine: Transaction, start_session: StartSession, database: Database
) -> None:
    start_session(*(f"otter {number}" for number in range(5)))
    mine.search.catch_up(2)
    hits = database.read(lambda tx: tx.search.find(SearchQuery(text="otter")))
    assert numbers(hits) == [1, 2, 3, 4, 5]


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
def test_search_never_raises_for_any_query(start_session: StartSession, find: Find, text: str) -> None:
    find(text)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(text=st.text())
def test_any_text_is_stored_and_searched(start_session: StartSession, find: Find, text: str) -> None:
    session = start_session(f"otter {text}")
    assert [hit.session_id for hit in find("otter", session_id=session)] == [session]
