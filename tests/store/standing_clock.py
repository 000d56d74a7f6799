"""A watch from before clocks could stand, as rows that both kinds of store take, and what must have become of them."""

from __future__ import annotations

from allswell.domain.ids import RunId, TaskId
from allswell.store.port import Store

ROWS = """
INSERT INTO run VALUES ('r_a', 'build', 0, 1000, NULL, '', ''), ('r_b', 'build', 0, 1000, NULL, '', '');
INSERT INTO timer VALUES ('r_a', 1000), ('r_b', 1000);
INSERT INTO task (id, name, run, role, lane, priority, state, created_at, spec, record, payload, rank) VALUES
    ('t_asks', 't_asks', 'r_a', '', 1, 0, 'open', 0, '{}', '{}', 'null', 0),
    ('t_cut', 't_cut', 'r_a', '', 1, 0, 'open', 0, '{}', '{}', 'null', 0),
    ('t_own', 't_own', 'r_a', '', 1, 0, 'open', 0, '{"policy":{"timeout":300},"limit_at":1000}', '{}', 'null', 0);
INSERT INTO lease (task, token, agent, granted_at, deadline, ask_every, ask_wait, grace, command, judged,
                   renewed_at, note)
VALUES ('t_cut', 1, 'ann', 100, 1000, 5000, 500, 10, '', 0, 100, ''),
       ('t_own', 1, 'ann', 100, 400, 5000, 500, 10, '', 0, 100, '');
INSERT INTO question (id, task, run, kind, text, options, asked_at, asked_by, answer, answered_by, command)
VALUES ('q_asks.1', 't_asks', 'r_a', 'agent', 'how?', '[]', 600, 'ann', '', '', ''),
       ('q_cut.1', 't_cut', 'r_a', 'agent', 'how?', '[]', 500, 'ann', '', '', '');
INSERT INTO attempt VALUES ('t_own', 7, 'bob', 1, 2, 'released', '', '', '"old"');
"""
"""A run with a deadline of 1,000: one task waits for an answer, two are held; another run has no question.

That `t_asks` waits for `q_asks.1` is left to each store: the table has another name there.
"""


async def check_clock_stands(store: Store) -> None:
    """What was asked stops the clock of its run; what was asked in passing does not."""
    first, second = await store.view_run(RunId("r_a")), await store.view_run(RunId("r_b"))
    assert first is not None
    assert second is not None
    assert (first.asked, first.stands_since, first.stood, first.limit) == (1, 600, 0, None)
    assert (second.asked, second.stands_since, second.limit) == (0, None, 1000)
    waited = {question.id: question.waited for question in await store.view_questions()}
    assert waited == {"q_asks.1": True, "q_cut.1": False}, "what was asked in passing is not waited for"
    cut, own = await store.view_task(TaskId("t_cut")), await store.view_task(TaskId("t_own"))
    assert cut is not None
    assert cut.lease is not None
    assert own is not None
    assert own.lease is not None
    assert (cut.lease.deadline, cut.lease.own) == (1000, 900_100), "its run had cut it short"
    assert (own.lease.deadline, own.lease.own) == (400, None)
    (attempt,) = await store.view_attempts(TaskId("t_own"))
    assert (attempt.late, attempt.afterwards) == ('"old"', None)
