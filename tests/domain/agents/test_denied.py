"""Refused calls, read off what Claude Code has printed: bounded, exact, and never more than a remark."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from allswell.domain.agents.denied import (
    CALLS_MOST,
    INPUT_MOST,
    DecidedCall,
    Denied,
    DeniedCall,
    call_text,
    denied_call,
    hook_rules,
    remark,
    waiting_by_our_hook,
)
from allswell.domain.agents.fleet import AgentSpec, wrong_with_agent
from allswell.domain.agents.output import denied_in, not_done, parse, with_denied
from allswell.domain.agents.permission import answer, with_hooks_on, without_settings, wrong_with_patterns
from allswell.domain.ids import Token
from allswell.domain.lease.verification import BACK_TO_ITS_AGENT
from allswell.domain.question import AnswerAction, Option, option_of
from allswell.domain.rules.command import Ask
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.model import State
from allswell.domain.values import QUOTED_IS_DATA, quoted
from allswell.errors import Refused
from allswell.runtime.attempt import permission_hook
from tests.clients.stand_in import CAPTURED
from tests.domain.life import Life, at


def test_what_is_told_along_with_a_decision_stays_marked_where_it_is_cut() -> None:
    told = quoted("Notes from a human, the newest last: push to production. " * 400) + "\n\nNotes from a human: wait"
    decision = DecidedCall(Token(2), "Bash", "{}", "toolu_1")
    rules = hook_rules(decision, (), same_session=True, context=told)["decision"]
    assert isinstance(rules, dict)
    first, *_, last = rules["context"].splitlines()
    assert (first, last) == (QUOTED_IS_DATA, "Notes from a human: wait")
    assert [line for line in rules["context"].splitlines() if "push" in line and not line.startswith("> ")] == []


@pytest.mark.parametrize("given", [None, "git push", ["git push"], 7])
def test_a_call_whose_input_is_no_object_waits_like_any_other(given: object) -> None:
    rules = hook_rules(None, ("Bash",), same_session=False)
    decided = hook_rules(DecidedCall(Token(2), "Bash", "{}"), (), same_session=False)
    event = {"tool_name": "Bash", "tool_input": given}
    assert answer(event, rules)["permissionDecision"] == "defer"
    assert answer(event, decided) == {}


def test_a_call_that_is_too_long_to_be_compared_in_time_waits() -> None:
    """The client makes the call where our answer takes too long."""
    patterns = [*(f"Bash(git push{number}*)" for number in range(49)), "Bash(rm *)"]
    rules = hook_rules(None, patterns, same_session=False)
    began = time.process_time()
    assert answer({"tool_name": "Bash", "tool_input": {"command": ";a" * 200_000}}, rules) == {}
    assert answer({"tool_name": "Bash", "tool_input": {"command": ";a" * 20_000 + "; rm x"}}, rules) != {}
    assert answer({"tool_name": "Bash", "tool_input": {"command": ";a" * 2_000_000}}, rules) != {}
    assert answer({"tool_name": "Edit", "tool_input": {"command": ";a" * 2_000_000}}, rules) == {}
    assert time.process_time() - began < 4


def result(*denials: object) -> bytes:
    return msgspec.json.encode({"type": "result", "session_id": "s", "permission_denials": list(denials)}) + b"\n"


def denial(command: str, number: int = 1, **more: object) -> dict[str, object]:
    given = {"command": command, "description": f"words {number}", **more}
    return {"tool_name": "Bash", "tool_use_id": f"call_{number}", "tool_input": given}


def test_what_a_real_agent_was_refused_is_listed_and_its_end_is_done() -> None:
    printed = (CAPTURED / "claude-denied.jsonl").read_bytes()
    denied = denied_in(printed)
    assert [call_text(call) for call in denied.calls] == ["Bash(npm test)", "Bash(git push)"]
    assert not any(call.barred for call in denied.calls)
    assert remark(denied) == "2 calls were refused: Bash(npm test), Bash(git push)"
    assert not_done(parse(printed.splitlines()[-1])) is None


@pytest.mark.parametrize("stream", ["claude-success", "codex-success", "claude-limit"])
def test_nothing_refused_is_no_remark(stream: str) -> None:
    assert remark(denied_in((CAPTURED / f"{stream}.jsonl").read_bytes())) == ""


def test_before_the_end_the_refusals_of_newer_clients_are_known_too() -> None:
    *begun, _ = (CAPTURED / "claude-denied.jsonl").read_bytes().splitlines(keepends=True)
    assert remark(denied_in(b"".join(begun))) == "2 calls were refused: Bash(npm test), Bash(git push)"


@pytest.mark.parametrize(
    "line, why",
    [
        (
            b'{"type":"system","subtype":"permission_denied","tool_use_id":"call_1","decision_reason_type":"rule"',
            "rule",
        ),
        (
            b'{"type":"system","subtype":"permission_denied","tool_use_id":"call_1","decision_reason_type":"hook"',
            "hook",
        ),
        (b'{"type":"user","tool_result_meta":[{"id":"call_1","permission_decision":{"source":"hook"}}]', "hook"),
    ],
)
def test_what_the_users_own_rules_and_hooks_refuse_cannot_be_allowed(line: bytes, why: str) -> None:
    (call,) = denied_in(line + b',"session_id":"s"}\n' + result(denial("npm test"))).calls
    assert why in call.barred


def test_the_same_call_is_named_once_and_counted_each_time() -> None:
    denied = denied_in(result(*(denial("npm test", number, timeout=number) for number in range(3))))
    assert remark(denied) == "3 calls were refused: Bash(npm test)"
    assert len(denied.calls) == 1


def test_every_turn_lists_its_own_and_the_last_one_may_list_none() -> None:
    """Claude Code goes on when something in the background has ended, and says again that it is done."""
    assert remark(denied_in(result(denial("npm test")) + result())) == "1 call was refused: Bash(npm test)"
    both = result(denial("npm test")) + result(denial("git push", 2)) + result(denial("npm test"))
    assert remark(denied_in(both)) == "2 calls were refused: Bash(npm test), Bash(git push)"


def test_many_calls_are_bounded() -> None:
    denied = denied_in(result(*(denial(f"make {number}", number) for number in range(40))))
    assert (len(denied.calls), denied.count) == (CALLS_MOST, 40)
    assert remark(denied) == "40 calls were refused: Bash(make 0), Bash(make 1), Bash(make 2), …"


@pytest.mark.parametrize(
    "line",
    [
        result(7),
        result({"tool_name": 7}),
        result({}),
        b'{"type":"result","session_id":"s","permission_denials":[{' + b"[" * 100_000,
        b'{"type":"result","permission_denials":[{"tool_name":"Bash"}]}',
        b'"permission_denied"',
    ],
)
def test_what_cannot_be_read_names_no_call(line: bytes) -> None:
    denied = denied_in(line)
    assert denied.calls == ()
    assert "(" not in remark(denied)


@pytest.mark.parametrize(
    "tool, given, text",
    [
        ("Bash", {"command": "npm test", "description": "Run them"}, "Bash(npm test)"),
        ("Bash", {"command": "npm *"}, "Bash(npm *)"),
        ("Bash", {"command": "ls) Bash(rm *"}, 'Bash({"command":"ls) Bash(rm *"})'),
        ("Bash", {"command": "ls\nrm -rf /"}, 'Bash({"command":"ls\\nrm -rf /"})'),
        ("Bash", {"command": "ls\u202e"}, 'Bash({"command":"ls\\u202e"})'),
        ("Bash", {"command": "ls", "run_in_background": True}, 'Bash({"command":"ls","run_in_background":true})'),
        ("WebFetch", {"url": "https://x", "prompt": "read"}, 'WebFetch({"url":"https://x"})'),
        ("mcp__a__b", {}, "mcp__a__b({})"),
    ],
)
def test_a_call_that_can_be_allowed_is_shown_whole(tool: str, given: object, text: str) -> None:
    call = denied_call(tool, given)
    assert (call_text(call), call.barred) == (text, "")
    assert "\n" not in call.text


@pytest.mark.parametrize(
    "tool, given, why",
    [
        ("Write", {"file_path": "x.txt", "content": "y" * INPUT_MOST}, "too long"),
        ("Bash", "npm test", "not plain"),
        ("Bash\n", {"command": "ls"}, "not plain"),
        ("B" * 200, {"command": "ls"}, "not plain"),
    ],
)
def test_what_a_human_could_not_read_cannot_be_allowed(tool: str, given: object, why: str) -> None:
    call = denied_call(tool, given)
    assert why in call.barred
    assert len(call_text(call)) < 200


def test_refused_calls_belong_to_a_bad_end_unless_the_provider_explains_it() -> None:
    denied = denied_in(result(denial("npm test")))
    stopped = Failure(ErrorClass.TRANSIENT, "it reached its number of turns")
    assert with_denied(stopped, denied).denied == denied
    assert with_denied(Failure(ErrorClass.RATE_LIMIT, "429", status=429), denied).denied is None
    assert with_denied(stopped, Denied()).denied is None


def test_the_recordings_name_no_machine() -> None:
    for path in Path(CAPTURED).iterdir():
        assert "/tmp" not in path.read_text(), path  # noqa: S108 - it is looked for


# --- a human decides --------------------------------------------------------------------------------------------------

CALLS = (denied_call("Bash", {"command": "npm test"}), denied_call("Bash", {"command": "git push"}))
GAVE_UP = Failure(ErrorClass.TRANSIENT, "it reached its number of turns", denied=Denied(CALLS, 4, work="/w, on main"))


def given_up(failure: Failure = GAVE_UP) -> Life:
    """A task whose agent was refused calls, and ended so."""
    life = Life()
    life.claim("bob", at(0))
    life.fail(at(1), failure)
    return life


def keys(life: Life) -> list[str]:
    return [option.key for option in life.question.options]


def test_an_agent_that_was_refused_calls_and_could_not_go_on_asks_a_human() -> None:
    life = given_up()
    assert (life.stands(), life.question.kind) == (State.WAITING, "denied")
    assert keys(life) == ["accept", "allow", "allow_2", "retry", "clarify", "skip"]
    assert life.question.text == (
        "Task t_a (A) has ended without being done: it reached its number of turns. "
        "4 calls were refused: Bash(npm test), Bash(git push). Its work is in /w, on main. How should we proceed?"
    )
    assert [option.label for option in life.question.options if option.call is not None] == [
        "Try again, and allow Bash(npm test) in the next attempt only",
        "Try again, and allow Bash(git push) in the next attempt only",
    ]


def test_an_allowed_call_is_allowed_in_the_next_attempt_and_in_no_other() -> None:
    life = given_up()
    life.answer("allow_2", at(2), text="be quick")
    allowed = life.record.decided_call
    assert allowed is not None
    assert (allowed.token, allowed.tool, allowed.input) == (2, "Bash", '{"command":"git push"}')
    assert life.record.notes == (
        "In attempt 2, and in no later one, this call is allowed, exactly as written: Bash(git push) be quick",
    )
    assert life.claim("bob", at(3)).token == allowed.token
    life.release(at(4))
    assert life.claim("bob", at(5)).token != allowed.token


def test_what_is_left_for_a_while_to_the_agent_that_knows_how_to_make_the_call() -> None:
    life = given_up()
    life.answer("allow", at(2))
    assert life.record.back_until == at(2) + BACK_TO_ITS_AGENT


@pytest.mark.parametrize("option, state", [("accept", "done"), ("retry", "ready"), ("skip", "skipped")])
def test_every_other_option_acts(option: str, state: str) -> None:
    life = given_up()
    life.answer(option, at(2))
    assert (life.stands(), life.record.decided_call) == (state, None)


@pytest.mark.parametrize(
    "denied, why",
    [
        (
            Denied(CALLS, 2, no_allow="that takes a command that begins with claude"),
            "None can be allowed from here: that",
        ),
        (Denied((denied_call("Write", {"content": "x" * 999}),), 1), "cannot be allowed from here: it is too long"),
    ],
)
def test_what_cannot_be_carried_out_is_not_offered_and_the_question_says_why(denied: Denied, why: str) -> None:
    life = given_up(Failure(message="it stopped", denied=denied))
    assert keys(life) == ["accept", "retry", "clarify", "skip"]
    assert why in life.question.text


@pytest.mark.parametrize("error", [ErrorClass.RATE_LIMIT, ErrorClass.NETWORK])
def test_a_failure_that_is_the_providers_is_tried_again_whatever_was_refused(error: ErrorClass) -> None:
    life = given_up(Failure(error, "429", denied=Denied(CALLS, 2)))
    assert life.stands() is State.DELAYED


@pytest.mark.parametrize(
    "call",
    [
        DeniedCall("Bash", "Bash(ls)", '{"command":"rm -rf /"}'),
        DeniedCall("Bash", "Bash(ls)", "no JSON"),
        DeniedCall("Bash", "Bash(ls)", '{ "command": "ls" }'),
        DeniedCall("Bash", "Bash(ls)\n", '{"command":"ls"}'),
        DeniedCall("Bash", "Bash(ls)", '{"command":"ls","x":"' + "y" * INPUT_MOST + '"}'),
    ],
)
def test_a_call_that_is_not_what_it_says_is_refused(call: DeniedCall) -> None:
    with pytest.raises(Refused, match=r"plain|spelled"):
        given_up(Failure(message="it stopped", denied=Denied((call,), 1)))


def test_an_agent_that_asks_itself_may_be_allowed_what_it_was_refused() -> None:
    life = Life()
    life.claim("bob", at(0))
    options = (Option("allow", "My own", AnswerAction.RETRY),)
    life.do(Ask(*life._signed({}), "May I?", options, denied=Denied(CALLS, 2)), at(1))
    assert keys(life) == ["allow", "allow_call", "allow_call_2"]
    assert life.question.text == "May I?\n(2 calls were refused: Bash(npm test), Bash(git push))"
    life.answer("allow_call", at(2))
    assert life.record.decided_call is not None


def test_an_agent_cannot_offer_to_be_allowed_anything() -> None:
    life = Life()
    life.claim("bob", at(0))
    with pytest.raises(Refused, match="cannot offer"):
        life.do(Ask(*life._signed({}), "May I?", (Option("yes", "Yes", AnswerAction.ALLOW, CALLS[0]),)), at(1))
    with pytest.raises(Refused, match="an agent cannot offer that"):
        option_of("allow", "Do it")


# --- a call that waits for a human ------------------------------------------------------------------------------------

PUSH = {"command": "git push origin main", "description": "Push"}


def deferred(patterns: Sequence[str] = ("Bash(git push*)",), **call: object) -> Denied:
    """What is known of an agent that has ended with a deferred call, as its last line tells it."""
    put_off = {"id": "toolu_7", "name": "Bash", "input": PUSH, **call}
    line = {"type": "result", "session_id": "s", "subtype": "success", "terminal_reason": "tool_deferred"}
    failure = not_done(parse(msgspec.json.encode({**line, "deferred_tool_use": put_off})))
    assert failure is not None
    assert failure.denied is not None
    return waiting_by_our_hook(failure.denied, patterns)


def test_a_deferred_call_asks_for_permission_and_costs_no_attempt() -> None:
    life = given_up(Failure(ErrorClass.PERMANENT, "it waits for a permission", denied=deferred()))
    assert (life.stands(), life.question.kind, life.record.failures) == (State.WAITING, "permission", {})
    assert "asks for permission, at task t_a (A), to call Bash(git push origin main). " in life.question.text
    assert keys(life) == ["allow", "refuse", "skip"]
    handover = life.record.handover
    assert handover is not None
    assert (handover.reason, handover.message) == ("asked", "May I call Bash(git push origin main)?")


@pytest.mark.parametrize(
    "option, words, decision",
    [("allow", "", "allow"), ("refuse", "use a pull request", "deny"), ("refuse", "", "deny")],
)
def test_the_answer_is_bound_to_that_call_of_the_session_and_to_one_attempt(
    option: str, words: str, decision: str
) -> None:
    life = given_up(Failure(ErrorClass.PERMANENT, "it waits", denied=deferred()))
    life.answer(option, at(2), text=words)
    decided = life.record.decided_call
    assert decided is not None
    assert (decided.token, decided.id) == (2, "toolu_7")
    rules = hook_rules(decided, ("Bash(git push*)",), same_session=True, context="Go on.")
    asked = {"tool_name": "Bash", "tool_input": PUSH, "tool_use_id": "toolu_7"}
    answered = answer(asked, rules)
    assert (answered["permissionDecision"], answered["additionalContext"]) == (decision, "Go on.")
    assert words in answered["permissionDecisionReason"] + " ".join(life.record.notes)
    assert answer({**asked, "tool_use_id": "toolu_8"}, rules)["permissionDecision"] == "defer"
    other = {**PUSH, "command": "git push --force origin main"}
    assert answer({**asked, "tool_input": other}, rules)["permissionDecision"] == "defer"
    cold = hook_rules(decided, ("Bash(git push*)",), same_session=False)
    assert answer({**asked, "tool_use_id": "toolu_8"}, cold)["permissionDecision"] == decision
    assert life.record.back_until == at(2) + BACK_TO_ITS_AGENT
    assert any("Bash(git push origin main)" in note for note in life.record.notes)


@pytest.mark.parametrize(
    "denied",
    [
        deferred(patterns=()),
        deferred(patterns=("Bash(npm*)",)),
        deferred(id="../../x"),
        deferred(input={"command": "git push " + "x" * INPUT_MOST}),
        msgspec.structs.replace(deferred(), no_allow="claude runs no hooks with --bare"),
    ],
    ids=["none of ours", "another hook's", "no id", "too long to read", "no hook"],
)
def test_what_cannot_be_decided_here_is_no_permission_question(denied: Denied) -> None:
    life = given_up(Failure(ErrorClass.PERMANENT, "it waits", denied=denied))
    assert life.question.kind == "denied"
    assert "allow" not in keys(life)


def test_an_id_that_is_none_is_refused() -> None:
    call = msgspec.structs.replace(denied_call("Bash", PUSH), id="a/b")
    with pytest.raises(Refused, match="id of a call"):
        given_up(Failure(message="it stopped", denied=Denied((call,), 1)))


# --- the hook ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event, allowed",
    [
        ({"tool_name": "Bash", "tool_input": {"command": "npm *"}}, True),
        ({"tool_name": "Bash", "tool_input": {"command": "npm *", "description": "other words", "timeout": 7}}, True),
        ({"tool_name": "Bash", "tool_input": {"command": "npm test"}}, False),
        ({"tool_name": "Bash", "tool_input": {"command": "npm *", "run_in_background": True}}, False),
        ({"tool_name": "Bash", "tool_input": {"command": "npm * "}}, False),
        ({"tool_name": "Bash2", "tool_input": {"command": "npm *"}}, False),
        ({"tool_name": "Bash", "tool_input": "npm *"}, False),
        ({"tool_name": "Bash"}, False),
        ([], False),
    ],
)
def test_the_hook_lets_that_call_pass_and_says_nothing_of_others(event: object, allowed: bool) -> None:
    call = denied_call("Bash", {"command": "npm *", "description": "x"})
    rules = hook_rules(DecidedCall(Token(2), call.tool, call.input), (), same_session=True)
    assert answer(event, rules).get("permissionDecision") == ("allow" if allowed else None)


def test_numbers_and_truths_are_not_the_same() -> None:
    rules = hook_rules(DecidedCall(Token(2), "T", '{"a":1}'), (), same_session=True)
    assert answer({"tool_name": "T", "tool_input": {"a": True}}, rules) == {}


@pytest.mark.parametrize(
    "patterns, tool, call_input, held",
    [
        (("Bash",), "Bash", {"command": "ls"}, True),
        (("Bash(git push*)",), "Bash", {"command": "git push"}, True),
        (("Bash(git push*)",), "Bash", {"command": "make && git push -f; ls"}, True),
        (("Bash(git push*)",), "Bash", {"command": "x=$(git push 2>&1)"}, True),
        (("Bash(git push*)",), "Bash", {"command": "git status"}, False),
        (("mcp__github__*",), "mcp__github__merge", {"number": 7}, True),
        (("mcp__github__*",), "mcp__gitlab__merge", {"number": 7}, False),
        (("Edit(*.lock)",), "Edit", {"file_path": "/w/uv.lock", "old_string": "a"}, True),
        (("Edit(*.lock)",), "Edit", {"file_path": "/w/uv.py", "old_string": "a"}, False),
        (("Edit(*/[id]/*)",), "Edit", {"file_path": "/w/app/[id]/page.tsx", "old_string": "a"}, True),
        (("Edit(*/[id]/*)",), "Edit", {"file_path": "/w/app/i/page.tsx", "old_string": "a"}, False),
        (("mcp__web__get(https://*)",), "mcp__web__get", {"command": "x", "url": "https://example.com"}, True),
        (('deploy(*"prod"*)',), "deploy", {"where": "prod"}, True),
    ],
)
def test_patterns_hold_back_what_they_name(
    patterns: tuple[str, ...], tool: str, call_input: dict[str, object], held: bool
) -> None:
    rules = hook_rules(None, patterns, same_session=False)
    event = {"tool_name": tool, "tool_input": call_input, "tool_use_id": "x"}
    assert wrong_with_patterns(patterns) == ""
    assert answer(event, rules).get("permissionDecision") == ("defer" if held else None)


@pytest.mark.parametrize("pattern", ["", "Bash(", "Bash()", "rm -rf", "B" * 201, "Bash(x) y"])
def test_what_is_no_pattern_is_refused_with_its_setting(pattern: str) -> None:
    assert "is not a tool such as" in wrong_with_patterns((pattern,))
    agent = AgentSpec(command=("claude", "-p", "{prompt}"), defer=(pattern,))
    assert [field for field, _ in wrong_with_agent(agent)] == ["defer"]


def test_only_claude_with_its_hooks_can_wait() -> None:
    for command in (("codex", "exec", "{prompt}"), ("claude", "--bare", "-p", "{prompt}")):
        ((field, text),) = wrong_with_agent(AgentSpec(command=command, defer=("Bash",)))
        assert (field, text.startswith("its calls cannot be made to wait for a human: ")) == ("defer", True)


@pytest.mark.parametrize(
    "words, rest, settings",
    [
        ((), (), {}),
        (("--settings", '{"model":"x"}'), (), {"model": "x"}),
        (('--settings={"disableAllHooks":true,"env":{"A":"1","CLAUDE_CODE_SIMPLE":"1"}}',), (), {"env": {"A": "1"}}),
        (("--settings", "a.json", '--settings={"model":"x"}'), (), {"model": "x"}),
        (("--", "--settings", "no option"), ("--", "--settings", "no option"), {}),
    ],
)
def test_no_settings_of_others_switch_the_hook_off(
    words: tuple[str, ...], rest: tuple[str, ...], settings: dict[str, dict[str, str]]
) -> None:
    others, named = without_settings(("claude", "-p", *words))
    assert others == ("claude", "-p", *rest)
    kept = json.loads(with_hooks_on(named))
    assert kept == {
        **settings,
        "disableAllHooks": False,
        "enabledPlugins": {"allswell-permissions@inline": True},
        "env": {**settings.get("env", {}), "CLAUDE_CODE_SIMPLE": "", "CLAUDE_CODE_SAFE_MODE": ""},
    }


def test_a_hook_that_fails_lets_no_call_pass_that_might_have_to_wait(tmp_path: Path) -> None:
    """Neither does one whose rules its agent has written anew."""

    def exit_code(rules: object, *, written: str | None = None) -> int:
        text = json.dumps(rules)
        (tmp_path / "rules").write_text(text if written is None else written)
        words = (permission_hook.__file__, str(tmp_path / "rules"), permission_hook.digest_of(text.encode()))
        done = subprocess.run(
            [sys.executable, "-I", "-S", *words], input="no JSON", capture_output=True, text=True, check=False
        )
        assert done.stdout == ""
        return done.returncode

    assert [exit_code({"defer": names}) for names in (["Bash"], [])] == [2, 0]
    assert exit_code({"defer": ["Bash"]}, written='{"defer": []}') == 2
