"""What is written is read back as it was; what people and broken agents write otherwise does no harm (C8)."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allswell.domain.build.line import (
    LINE_BYTES,
    MESSAGE_MAX,
    MOST_LINES,
    AbortLine,
    AckLine,
    AnswerLine,
    AuditLine,
    BlockedLine,
    ClaimLine,
    CompleteLine,
    ErrorLine,
    EscalateLine,
    Line,
    MalformedLine,
    MergedLine,
    ProgressLine,
    ReadyLine,
    RejectLine,
    RetryLine,
    TasksLine,
    TimeoutLine,
    is_component_name,
    read,
    shown,
    tasks_lines,
    write,
)

pytestmark = pytest.mark.row("C8")

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True).filter(is_component_name)
agents = st.from_regex(r"@?[A-Za-z0-9_-]{1,32}", fullmatch=True)
urls = st.from_regex(r"https?://[a-z0-9.]{1,40}/[A-Za-z0-9,_*/?&=-]{0,300}", fullmatch=True)
questions = st.from_regex(r"q_[a-z0-9]{1,40}\.[0-9]{1,3}", fullmatch=True)
options = st.from_regex(r"[a-z_]{1,40}", fullmatch=True)
texts = st.text(max_size=4_000).map(shown) | st.sampled_from(
    ['"', '""', '"a" b', "40%", "40% done", "100", "150%", "a\nCLAIM b", "\\n", "\\", "**bold**", "� x", "ANSWER q_1 x"]
)

lines: st.SearchStrategy[Line] = st.one_of(
    st.builds(ClaimLine, names),
    st.builds(ProgressLine, names, st.none() | st.integers(0, 100), texts),
    st.builds(BlockedLine, names, names),
    st.builds(ReadyLine, names, urls),
    st.builds(AuditLine, names, st.booleans(), texts),
    st.builds(AbortLine, names, texts),
    st.builds(AnswerLine, questions, options, texts),
    st.builds(TasksLine, urls.filter(lambda url: "*" not in url), st.lists(names, max_size=40).map(tuple)),
    st.builds(AckLine, names, agents),
    st.builds(RejectLine, names, agents, texts),
    st.builds(TimeoutLine, names),
    st.builds(RetryLine, names),
    st.builds(MergedLine, names),
    st.builds(ErrorLine, texts),
    st.builds(EscalateLine, texts),
    st.builds(EscalateLine, texts, questions, st.lists(options, min_size=1, max_size=4).map(tuple)),
    st.builds(CompleteLine, st.just("") | urls.filter(lambda url: "*" not in url)),
)


@given(st.lists(lines, max_size=8))
def test_a_message_of_lines_is_read_back_as_it_was(said: list[Line]) -> None:
    written = [write(line) for line in said]
    assert read("\n".join(written)) == said
    assert all(len(text.encode()) <= LINE_BYTES and "\n" not in text for text in written)


@given(lines, st.sampled_from(["  {} ", "**{}**", "__{}__", "\t{}\t"]))
def test_case_bold_and_space_change_nothing(line: Line, shape: str) -> None:
    verb, rest = write(line).split(maxsplit=1)
    if "**" in rest or "__" in rest:
        shape = "  {} "  # only the first pair of marks is taken for bold
    assert read(shape.format(f"{verb.lower()}  {rest}")) == [line]
    assert read(f"**{verb.title()}** {rest}") == [line]


@pytest.mark.parametrize(
    "text, line",
    [
        ("CLAIM auth", ClaimLine("auth")),
        ("claim **auth**", ClaimLine("auth")),
        ("**CLAIM auth**", ClaimLine("auth")),
        ("Claim `auth-2.x`", ClaimLine("auth-2.x")),
        ("PROGRESS auth", ProgressLine("auth")),
        ("PROGRESS auth 40", ProgressLine("auth", 40)),
        ("PROGRESS auth 37.5%", ProgressLine("auth", 37)),
        ("PROGRESS auth 40% tests are green", ProgressLine("auth", 40, "tests are green")),
        ("PROGRESS auth 3 files left", ProgressLine("auth", None, "3 files left")),
        ("BLOCKED api auth", BlockedLine("api", "auth")),
        ("READY auth <https://git.example/pr/7>", ReadyLine("auth", "https://git.example/pr/7")),
        ("audit auth pass", AuditLine("auth", passed=True)),
        ('AUDIT auth FAIL "no tests"', AuditLine("auth", passed=False, details="no tests")),
        ('AUDIT auth FAIL "login" has no test', AuditLine("auth", passed=False, details='"login" has no test')),
        (r'AUDIT auth FAIL "one\ntwo"', AuditLine("auth", passed=False, details="one\ntwo")),
        ("ABORT auth environment failure", AbortLine("auth", "environment failure")),
        ('ABORT auth "say \\"please\\""', AbortLine("auth", 'say "please"')),
        ("ANSWER q_7.1 Extend two hours more", AnswerLine("q_7.1", "extend", "two hours more")),
        ("TASKS https://x/spec a, b,c", TasksLine("https://x/spec", ("a", "b", "c"))),
        ('ERROR "dependency cycle detected: A <-> B"', ErrorLine("dependency cycle detected: A <-> B")),
        ("ESCALATE all builders have failed auth", EscalateLine("all builders have failed auth")),
        ('ESCALATE "late" ANSWER q_7.1 extend|stop', EscalateLine("late", "q_7.1", ("extend", "stop"))),
        ("build complete", CompleteLine()),
        ("READY auth https://x/1 (retry)", ReadyLine("auth", "https://x/1")),
        ("READY auth", ReadyLine("auth")),
        ("READY auth (retry)", ReadyLine("auth")),
        ("READY auth [the pr](https://x/1)", ReadyLine("auth", "https://x/1")),
        ("Ready: `auth` https://x/1 please", ReadyLine("auth", "https://x/1")),
        ("CLAIM auth please", ClaimLine("auth")),
        ("CLAIM: auth", ClaimLine("auth")),
        ('CLAIM "auth"', ClaimLine("auth")),
        ("CLAIM 'auth'", ClaimLine("auth")),
        ("- CLAIM auth", ClaimLine("auth")),
        ("1. **CLAIM** auth", ClaimLine("auth")),
        ("`CLAIM auth`", ClaimLine("auth")),
        ("CLAIM please", ClaimLine("please")),
        ("AUDIT auth: FAIL: no tests", AuditLine("auth", passed=False, details="no tests")),
        ("- AUDIT `auth` PASS.", AuditLine("auth", passed=True)),
        ("PROGRESS: auth 40%", ProgressLine("auth", 40)),
    ],
)
def test_what_agents_write_is_understood(text: str, line: Line) -> None:
    assert read(text) == [line]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "hello",
        "I claim auth",
        "> CLAIM auth",
        "> - CLAIM auth",
        "CLAIMauth",
        "**CLAIM auth",
        "```",
        "@x CLAIM a",
    ],
)
def test_other_talk_is_ignored(text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "CLAIM",
        "claim to fame",
        "CLAIM ../etc",
        "CLAIM a/b",
        "CLAIM a..b",
        "CLAIM main.lock",
        "CLAIM auth.",
        "CLAIM -rf",
        "CLAIM a\x1bb",
        "CLAIM " + "a" * 65,
        "CLAIM auth now",
        "CLAIM auth, ../etc",
        "CLAIM a b",
        "READY auth javascript:alert(1)",
        "READY auth https://x/\u202e",
        "READY when you are",
        "AUDIT auth",
        "AUDIT auth MAYBE",
        "ANSWER extend",
        "ACK auth",
        "BUILD failed",
        "ESCALATE",
    ],
)
def test_what_begins_like_a_line_and_is_none_is_told(text: str) -> None:
    (found,) = read(text)
    assert isinstance(found, MalformedLine)
    assert found.why.startswith("this is not ")


def test_several_claims_in_one_line_are_as_many_claims() -> None:
    expected = [ClaimLine("a"), ClaimLine("b"), ClaimLine("c")]
    assert read("CLAIM a, `b` and c please") == expected
    assert read("- claim: a,b, and c") == expected


def test_several_lines_among_talk_are_read_in_order() -> None:
    message = "Good morning!\r\n\r\nREADY auth https://x/1\nand now\n**CLAIM** api\nthanks"
    assert read(message) == [ReadyLine("auth", "https://x/1"), ClaimLine("api")]


def test_control_characters_reach_nobody() -> None:
    (line,) = read("ABORT auth red \x1b[31m and \u202eback\u2028 and \x00")
    assert line == AbortLine("auth", "red �[31m and �back� and �")
    assert write(ErrorLine("a\x07\nb")) == 'ERROR "a�\\nb"'


def test_what_is_huge_is_not_looked_at() -> None:
    (found,) = read("CLAIM " + "x" * (1 << 20))
    assert isinstance(found, MalformedLine)
    assert len(found.text) < 100
    assert len(read("CLAIM a\n" * (MOST_LINES + 5))) == MOST_LINES + 1
    (cut,) = read("AUDIT a FAIL " + "é" * (MESSAGE_MAX - 20))
    assert isinstance(cut, AuditLine)
    assert cut.details.endswith("é…")
    assert len(write(cut).encode()) <= LINE_BYTES


@given(st.text(max_size=400) | st.binary(max_size=400).map(lambda raw: raw.decode("utf-8", "surrogateescape")))
@example("CLAIM " + "_" * 60 + "." * 4)
def test_no_text_whatever_is_too_much(text: str) -> None:
    for verb in ("", "CLAIM ", "audit a ", "**ESCALATE ", 'ABORT a "', "PROGRESS a "):
        for found in read(verb + text):
            if not isinstance(found, MalformedLine):
                assert read(write(found)) == [found]


def test_a_long_list_of_what_is_free_goes_out_in_as_few_lines_as_fit() -> None:
    free = [f"component-{number:05}" for number in range(10_000)]
    lines = tasks_lines("https://x/spec", free)
    assert [name for line in lines for name in line.free] == free
    sizes = [len(write(line)) for line in lines]
    assert all(LINE_BYTES - 20 < size <= LINE_BYTES for size in sizes[:-1])
    assert sizes[-1] <= LINE_BYTES
    assert tasks_lines("https://x/spec", []) == []
