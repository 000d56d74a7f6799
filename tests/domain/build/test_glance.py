"""A build at one glance: how far it is, who is at what, and what comes next."""

from allswell.domain.build.state import (
    LIMIT_OPTIONS,
    BuildAudit,
    BuildGlance,
    BuildQuestion,
    BuildStatus,
    ComponentState,
    ComponentStatus,
    work_on,
)
from allswell.domain.ids import QuestionId, RunId, TaskId, Token


def standing(*questions: BuildQuestion, **states: tuple[ComponentState, str]) -> BuildStatus:
    found = {name: ComponentStatus(name, state, tuple(needs.split())) for name, (state, needs) in states.items()}
    return BuildStatus(found, questions=questions)


def test_what_can_begin_soon_is_what_waits_for_nothing_but_work_under_way() -> None:
    seen = BuildGlance(
        RunId("r_1"),
        "shop",
        True,
        standing(
            db=("merged", ""),
            api=("held", "db"),
            web=("waiting", "api"),
            docs=("free", ""),
            site=("waiting", "docs web"),
            mail=("waiting", "docs db"),
            old=("asked", ""),
        ),
    )
    assert seen.next == ["web", "mail"]
    assert (seen.free, seen.asked, [one.name for one in seen.at_work]) == (["docs"], ["old"], ["api"])
    assert seen.counts == {"merged": 1, "held": 1, "waiting": 3, "free": 1, "asked": 1}
    question = BuildQuestion(QuestionId("q_1.1"), "What now?", LIMIT_OPTIONS)
    halted = BuildGlance(RunId("r_1"), "shop", True, standing(question, docs=("free", "")))
    assert halted.free == []  # nothing new is begun


def test_what_a_builder_is_at() -> None:
    def told(passed: bool | None) -> str:
        audit = BuildAudit(1, TaskId("t_1"), "https://x/1", "@a", Token(1), passed=passed)
        return work_on(ComponentStatus("api", "held", holder="@a", token=Token(1), audits=(audit,)))

    assert [told(passed) for passed in (None, True, False)] == [
        "in audit",
        "passed, to be merged",
        "fixing it after an audit",
    ]
    assert work_on(ComponentStatus("api", "held", holder="@a", token=Token(1))) == "building"
