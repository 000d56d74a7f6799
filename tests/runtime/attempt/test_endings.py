"""Every way an attempt can end, what it leaves behind, and that nobody survives it."""

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from allswell import Policy
from allswell.domain.agents.evidence import EvidenceKind
from allswell.domain.receipts.receipt import Receipt, told
from allswell.domain.rules.command import Command
from allswell.errors import LeaseLost
from allswell.runtime.attempt import AttemptRunner, End, order_for
from allswell.runtime.attempt.outcome import OutcomeReport
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace.recover import recover
from allswell.timing.clock import SystemClock
from tests import patience
from tests.runtime.attempt.stage import git, stage
from tests.runtime.process.stage import hanging

LONG = 3_600_000
"""A grace that no test waits for."""
IGNORING = "echo started; echo new > new; echo changed >> kept; trap '' TERM; sleep 600 & while :; do sleep 600; done"


def on_disk(path: Path | None) -> Receipt:
    assert path is not None
    return msgspec.json.decode(path.read_bytes(), type=Receipt)


def text_of(path: str) -> str:
    return Path(path).read_text()


def test_a_good_end_leaves_no_receipt_and_no_note(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell("echo hello; echo oops >&2")
            outcome = await attempt.run()
            assert (outcome.end, outcome.exit_code, outcome.receipt) == (End.DONE, 0, None)
            assert bytes(here.printed) in (b"hello\noops\n", b"oops\nhello\n")
            assert not here.home.receipts.all()
            assert list(here.home.attempts.iterdir()) == []
            assert [path.read_text() for path in sorted(here.home.transcripts.iterdir())] == ["oops\n", "hello\n"]
            assert git("for-each-ref", "refs/allswell", cwd=here.folder) == ""

    asyncio.run(main())


def test_a_bad_exit_keeps_the_work(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            outcome = await (await here.shell("echo new > new; exit 7")).run()
            assert (outcome.end, outcome.exit_code, outcome.reason) == (End.FAILED, 7, "exit code 7")
            receipt = on_disk(outcome.receipt_path)
            assert receipt == outcome.receipt
            assert (receipt.status, receipt.exit_code, receipt.partial) == (End.FAILED, 7, False)
            assert [(change.how, change.path) for change in receipt.changed] == [("A", "new")]
            assert receipt.advice.recover

    asyncio.run(main())


@pytest.mark.row("O4")
@pytest.mark.parametrize("cancelled", [False, True], ids=["its limit", "an order"])
def test_a_command_whose_start_hangs_is_ended_by(tmp_path: Path, cancelled: bool) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            with hanging(tmp_path) as program:
                limit = None if cancelled else 300
                attempt = await here.attempt(here.order(str(program), timeout=limit))
                running = asyncio.ensure_future(attempt.run())
                if cancelled:
                    await here.until(lambda: attempt._handle is not None and attempt._handle.record.reaper)
                    attempt.stop("the task was cancelled")
                outcome = await running
            assert outcome.end is (End.INTERRUPTED if cancelled else End.TIMEOUT)
            assert outcome.result is not None
            assert (outcome.result.survivors, outcome.result.proven) == ((), True)
            assert not (here.folder / "began").exists()

    asyncio.run(main())


@pytest.mark.row("O4", "F9")
def test_at_the_limit_the_work_is_kept_before_anybody_is_killed(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(IGNORING, timeout=700, grace=400)
            running = asyncio.ensure_future(attempt.run())
            receipts = here.home.receipts
            await here.until(receipts.all)
            first = receipts.all()[0].receipt
            assert here.living(), "the receipt must be there while everybody still lives"
            assert (first.status, first.partial) == (End.TIMEOUT, True)
            outcome = await running
            receipt = on_disk(outcome.receipt_path)
            assert (outcome.end, receipt.status, receipt.partial) == (End.TIMEOUT, End.TIMEOUT, False)
            assert receipt.limit_ms == 700
            assert receipt.elapsed_ms >= 700
            assert receipt.killed
            assert receipt.signal == signal.SIGKILL
            assert {(change.how, change.path) for change in receipt.changed} == {("A", "new"), ("M", "kept")}
            assert receipt.stdout is not None
            assert text_of(receipt.stdout.path) == "started\n"
            assert "its limit of 700ms was reached" in told(receipt)
            assert here.living() == []
            assert receipt.snapshot is not None
            recover(receipt.snapshot, into=tmp_path / "back")
            assert (tmp_path / "back" / "kept").read_text() == "as it was\nchanged\n"

    asyncio.run(main())


def test_what_an_agent_tidies_up_on_its_way_out_is_kept_as_it_was_before(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            script = "echo precious > draft; trap 'rm draft; exit 0' TERM; while :; do sleep 0.05; done"
            outcome = await (await here.shell(script, timeout=500, grace=5_000)).run()
            receipt = outcome.receipt
            assert receipt is not None
            assert receipt.snapshot is not None
            assert not (here.folder / "draft").exists()
            assert receipt.snapshot.previous is not None
            assert git("show", f"{receipt.snapshot.previous}:draft", cwd=here.folder) == "precious\n"

    asyncio.run(main())


@pytest.mark.realtime
@pytest.mark.alone
def test_a_spinner_is_idle_however_fast_it_paints(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            script = "while :; do printf '\\r|'; printf '\\r/'; printf '\\r-'; done"
            outcome = await (await here.shell(script, idle=1_000, timeout=20_000)).run()
            assert outcome.end is End.IDLE
            assert outcome.receipt is not None
            assert outcome.receipt.limit_ms == 1_000
            assert outcome.receipt.last_evidence is None
            assert [seen.sign for seen in outcome.receipt.evidence] == [EvidenceKind.OUTPUT]

    asyncio.run(main())


@pytest.mark.realtime
@pytest.mark.alone
def test_a_silent_compiler_at_full_speed_is_not_idle(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            outcome = await (await here.shell("while :; do :; done", idle=1_000, timeout=3_000)).run()
            assert outcome.end is End.TIMEOUT
            assert EvidenceKind.PROCESS in {seen.sign for seen in here.seen}

    asyncio.run(main())


@pytest.mark.realtime
def test_a_neighbour_s_files_keep_nobody_alive_and_one_s_own_do_again_when_it_is_gone(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            # Both on one store, and not watched by the same process, as far as either knows.
            writer = await here.shell("while [ ! -e stop ]; do echo more >> theirs; sleep 0.1; done")
            writing = asyncio.ensure_future(writer.run())
            await here.until((here.folder / "theirs").exists)
            slept = await (await here.shell("exec sleep 600", idle=800, timeout=20_000)).run()
            assert (slept.end, writing.done()) == (End.IDLE, False)
            assert f"attempt {writer.lease.task}.1 works in the same folder" in slept.reason
            assert slept.receipt is not None
            assert EvidenceKind.WORK not in {seen.sign for seen in slept.receipt.evidence}
            (here.folder / "stop").touch()
            await writing
            here.seen.clear()
            alone = await here.shell("for n in 1 2 3 4 5 6; do sleep 0.3; echo $n > own; done", idle=6_000)
            assert (await alone.run()).end is End.DONE
            assert EvidenceKind.WORK in {seen.sign for seen in here.seen}

    asyncio.run(main())


def test_what_is_written_in_the_first_moment_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            outcome = await (await here.shell("echo x > first; echo x > second; exec sleep 600", timeout=1_500)).run()
            assert outcome.receipt is not None
            last = outcome.receipt.last_evidence
            assert last is not None
            assert (
                last.sign is EvidenceKind.WORK
            )  # "first changed", or "first (new)" where the first look came before it
            assert last.what.split()[0] in {"first", "second"}
            assert "The last sign of progress was" in told(outcome.receipt)

    asyncio.run(main())


@pytest.mark.realtime
def test_a_change_in_the_work_is_progress_and_silence_is_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            script = "for n in 1 2 3 4 5; do sleep 0.5; echo $n > file; done; exec sleep 600"
            outcome = await (await here.shell(script, idle=1_500, timeout=20_000)).run()
            assert outcome.end is End.IDLE
            assert outcome.receipt is not None
            assert outcome.receipt.elapsed_ms > 2_500 + 1_000
            assert outcome.receipt.last_evidence is not None
            assert outcome.receipt.last_evidence.sign is EvidenceKind.WORK
            assert "file" in outcome.receipt.last_evidence.what

    asyncio.run(main())


@pytest.mark.parametrize("cancels", [False, True], ids=["ended at once", "asked to cancel first"])
def test_a_second_stop_from_outside_lets_go_of_the_grace(tmp_path: Path, cancels: bool) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            script = "trap 'echo > asked' INT; trap '' TERM; echo new > new; sleep 600 & while :; do wait; done"
            order = replace(here.order("sh", "-c", script, grace=LONG), cancels=cancels)
            attempt = await here.attempt(order)
            running = asyncio.ensure_future(attempt.run())
            await here.until((here.folder / "new").exists)
            attempt.stop("the night is over")
            await here.until(here.home.receipts.all if not cancels else (here.folder / "asked").exists)
            attempt.stop("now", grace=0)
            async with asyncio.timeout(patience.SECONDS):
                outcome = await running
            assert (outcome.end, outcome.reason) == (End.INTERRUPTED, "the night is over")
            assert outcome.receipt is not None
            assert outcome.receipt.killed

    asyncio.run(main())


def test_cancelling_the_caller_ends_the_tree_and_is_passed_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            attempt = await here.shell(IGNORING, grace=50)
            running = asyncio.ensure_future(attempt.run())
            await here.until((here.folder / "new").exists)
            for _ in range(3):
                running.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await running
            assert attempt.outcome is not None
            assert attempt.outcome.end is End.INTERRUPTED
            assert attempt.outcome.receipt_path is not None
            assert here.living() == []

    asyncio.run(main())


@pytest.mark.row("O10")
def test_a_lease_that_is_lost_ends_the_attempt(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            lease = await here.lease(length="600ms")
            attempt = await here.attempt(here.order("sh", "-c", IGNORING, grace=50), lease)
            running = asyncio.ensure_future(attempt.run())
            await here.until((here.folder / "new").exists)
            await here.watch.cancel(lease.task, "not wanted any more")
            outcome = await running
            assert (outcome.end, outcome.reason) == (End.CANCELLED, "the task was cancelled: not wanted any more")
            assert outcome.receipt is not None
            assert outcome.receipt.snapshot is not None

    asyncio.run(main())


@pytest.mark.row("O4", "O8")
@pytest.mark.parametrize(
    "policy, run, end, reason",
    [
        (Policy(timeout=300), None, End.TIMEOUT, "its limit of 300ms was reached"),
        (Policy(), 300, End.TIMEOUT, "the deadline of its run has passed"),
        (Policy(idle=300), None, End.IDLE, "the store heard of no progress for too long"),
        (
            Policy(checkpoint_interval=100, checkpoint_timeout=50, stall_threshold=1, recovery_grace=50),
            None,
            End.STALLED,
            "it missed too many check-ins",
        ),
    ],
)
def test_a_receipt_says_what_ended_the_attempt_whoever_noticed_first(
    tmp_path: Path, policy: Policy, run: int | None, end: End, reason: str
) -> None:
    class Behind(SystemClock):
        """The attempt's own clock, which does not get anywhere."""

        def monotonic(self) -> int:
            return 1_000_000

    async def main() -> None:
        async with stage(tmp_path) as here:
            within = None if run is None else await here.watch.open_run("run", timeout=run)
            await here.watch.submit("job", policy=policy, run=within)
            lease = await here.watch.claim(agent="ada")
            assert lease is not None
            attempt = AttemptRunner(here.order("sleep", "600"), lease, here.home, clock=Behind())
            running = asyncio.ensure_future(attempt.run())
            while await lease.past() is None:
                await asyncio.sleep(0.01)
            attempt.stop("the agent no longer holds the task", End.LEASE_LOST)  # as a supervisor that looks does
            outcome = await running
            assert (outcome.end, outcome.reason) == (end, reason)
            assert outcome.receipt is not None
            assert (outcome.receipt.status, outcome.receipt.reason) == (end, reason)

    asyncio.run(main())


def test_a_signal_from_elsewhere_is_told_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            outcome = await (await here.shell("kill -SEGV $$")).run()
            assert (outcome.end, outcome.reason) == (End.SIGNALLED, "signal SIGSEGV (11)")

    asyncio.run(main())


def test_a_command_that_the_kernel_does_not_take(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            program = here.folder / "program"
            program.write_text("#!/nowhere/at/all\n")
            program.chmod(0o755)
            outcome = await (await here.attempt(here.order("./program"))).run()
            assert outcome.end is End.NOT_STARTED
            assert "cannot be run" in outcome.reason
            assert on_disk(outcome.receipt_path).status is End.NOT_STARTED
            assert list(here.home.attempts.iterdir()) == []

    asyncio.run(main())


def test_a_disk_that_is_full_for_the_receipt_costs_the_receipt_alone(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            here.home.folder.mkdir()
            (here.home.folder / "receipts").write_text("in the way")
            outcome = await (await here.shell("echo new > new; exit 7")).run()
            assert outcome.end is End.FAILED
            assert outcome.receipt_path is None
            assert "the receipt could not be written" in " ".join(outcome.warnings)
            assert outcome.receipt is not None
            assert outcome.receipt.snapshot is not None

    asyncio.run(main())


def test_without_any_place_to_write_the_command_runs_all_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            here.home.folder.write_text("in the way")
            outcome = await (await here.shell("echo hello")).run()
            assert outcome.end is End.DONE
            assert bytes(here.printed) == b"hello\n"
            lost = ("what it prints cannot be kept", "if this process is killed", "what was in")
            assert all(told.startswith(start) for told, start in zip(outcome.warnings, lost, strict=True))

    asyncio.run(main())


def test_outside_a_repository_only_what_the_attempt_touched_is_copied(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            plain = tmp_path / "plain"
            plain.mkdir()
            (plain / "old").write_text("was here before")
            await asyncio.sleep(0.1)  # the kernel's time stamps are coarse
            lease = await here.lease()
            order = order_for(["sh", "-c", "echo new > new; exit 1"], cwd=plain, folder=plain)
            outcome = await AttemptRunner(order, lease, StateDir(tmp_path / ".allswell")).run()
            assert outcome.receipt is not None
            assert [change.path for change in outcome.receipt.changed] == ["new"]

    asyncio.run(main())


def test_the_stage_has_no_survivors_to_hide(tmp_path: Path) -> None:
    """The other tests rely on `living`: it must see what is there."""

    async def main() -> None:
        async with stage(tmp_path) as here:
            running = asyncio.ensure_future((attempt := await here.shell("exec sleep 600")).run())
            await here.until(here.living)
            attempt.stop("enough")
            await running

    asyncio.run(main())


@pytest.mark.row("O8", "O10")
def test_done_that_the_store_has_taken_while_a_stalled_agent_is_ended_is_what_everything_says(tmp_path: Path) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            says = f"trap '{sys.executable} -m allswell done; exit' TERM; touch ready; while :; do sleep 0.05; done"
            attempt = await here.shell(says, grace=60_000)
            running = asyncio.ensure_future(attempt.run())
            await here.until((here.folder / "ready").exists)
            attempt.stop("it missed too many check-ins", End.STALLED)
            outcome = await running
            assert (outcome.end, outcome.said) == (End.DONE, "done")
            assert outcome.reason.startswith("it said done while it was being ended")
            assert outcome.receipt is not None
            assert outcome.receipt.status is End.DONE
            row = await here.watch.task(attempt.lease.task)
            assert row is not None
            assert row.task.state == "done"

    asyncio.run(main())


@pytest.mark.row("O10")
@pytest.mark.parametrize("reported", [False, True])
def test_who_says_done_while_its_lease_is_renewed_ends_by_itself_and_leaves_no_receipt(
    tmp_path: Path, reported: bool
) -> None:
    async def main() -> None:
        async with stage(tmp_path) as here:
            says = f"{sys.executable} -m allswell done && touch said; while [ ! -e go ]; do sleep 0.02; done"
            attempt = await here.shell(says)
            lease = attempt.lease
            send = lease.send

            async def send_and_renew(command: Command) -> object:
                answer = await send(command)
                with suppress(LeaseLost):  # the store has taken it, and its answer is on the way
                    await lease.renew()
                for _ in range(100):
                    await asyncio.sleep(0)
                return answer

            lease.send = send_and_renew
            report = OutcomeReport(lease, here.home, print) if reported else None
            attempt = AttemptRunner(attempt.order, lease, here.home, report=report)
            running = asyncio.ensure_future(attempt.run())
            await here.until(lambda: running.done() or (here.folder / "said").exists())
            (here.folder / "go").touch()
            outcome = await running
            if report is not None:
                report.close()
            assert (outcome.end, outcome.reason, outcome.receipt) == (End.DONE, "it said done", None)
            assert not here.home.receipts.all()

    asyncio.run(main())
