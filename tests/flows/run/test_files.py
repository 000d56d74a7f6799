"""The files of a run: the seed's shapes to the letter, and nothing unreadable whatever a crash leaves."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from allswell.domain.receipts.step import Capture, ContextForResume, CutOffChoice, TimeoutRecord, offered
from allswell.errors import Refused, Unavailable
from allswell.flows.run.folder import FlowEvent, RunBase, RunRecord, all_records, find_base
from allswell.runtime.workspace import files
from allswell.runtime.workspace.files import Files, read, read_lines, stamp

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/reference/run-files.schema.json").read_text())
SEED_CAPTURE = """
{
  "timeout_event": {
    "timestamp": "2024-01-15T10:30:00Z",
    "scope": "step",
    "timeout_ms": 600000,
    "elapsed_ms": 600123
  },
  "last_known_state": {
    "step_id": "build-step-3",
    "agent_key": "code-implementer",
    "phase": "work",
    "progress_indicator": "string (if available)"
  },
  "partial_artifacts": [
    {
      "path": "RUN_BASE/build/partial_impl.py",
      "complete": false,
      "bytes_written": 4523
    }
  ],
  "context_for_resume": {
    "last_successful_checkpoint": "build-step-2",
    "uncommitted_changes": ["src/auth.py", "tests/test_auth.py"],
    "transcript_path": "RUN_BASE/build/llm/step-3-partial.jsonl"
  }
}
"""
SEED_LINE = """
{
  "timestamp": "2024-01-15T10:30:00Z",
  "run_id": "abc123",
  "flow_key": "build",
  "step_id": "step-3",
  "scope": "llm_call",
  "timeout_ms": 120000,
  "elapsed_ms": 120034,
  "retry_count": 2,
  "final_action": "escalate",
  "recovery_path": "RUN_BASE/build/receipts/step-3-timeout.json"
}
"""


def validate(kind: str, content: object) -> None:
    """Hold a file to the published schema."""
    schema = {"$schema": SCHEMA["$schema"], "$defs": SCHEMA["$defs"], "$ref": f"#/$defs/{kind}"}
    jsonschema.Draft202012Validator(schema).validate(content)


@pytest.mark.row("F9")
def test_the_seeds_own_capture_has_our_shape_field_by_field() -> None:
    seed: dict[str, Any] = json.loads(SEED_CAPTURE)
    ours = {"status": "timeout", "partial": False, **seed}
    capture = msgspec.convert(ours, Capture)
    assert json.loads(msgspec.json.encode(capture)) == ours
    validate("timeout", ours)
    for part, fields in seed.items():
        first = fields[0] if isinstance(fields, list) else fields
        for field in first:
            broken = json.loads(json.dumps(ours))
            inner = broken[part][0] if isinstance(fields, list) else broken[part]
            inner[f"{field}_"] = inner.pop(field)
            with pytest.raises(jsonschema.ValidationError):
                validate("timeout", broken)


@pytest.mark.row("F10")
def test_the_seeds_own_line_has_our_shape_field_by_field() -> None:
    seed = json.loads(SEED_LINE)
    assert msgspec.to_builtins(msgspec.convert(seed, TimeoutRecord)) == seed
    validate("timeouts_line", seed)
    for field in seed:
        with pytest.raises(jsonschema.ValidationError):
            validate("timeouts_line", {name: value for name, value in seed.items() if name != field})


@pytest.mark.row("F11")
def test_work_that_may_be_salvaged_is_offered_in_the_seeds_words_and_none_is_not() -> None:
    assert offered(ContextForResume("a", (), None)) is None
    offer = offered(ContextForResume("a", ("src/auth.py",), None))
    assert json.loads(msgspec.json.encode(offer)) == {
        "options": ["retry_step", "discard_and_retry", "escalate"],
        "recommendation": "retry_step",
        "reason": "Partial work exists that may be salvageable",
    }
    assert tuple(CutOffChoice) == ("retry_step", "discard_and_retry", "escalate")


# --- how they are written ---------------------------------------------------------------------------------------------


def record(folder: Path, run: str = "r_1") -> RunRecord:
    return RunRecord(run, "build", str(folder / "f.yaml"), str(folder), {"a": 1}, (run,), stamp(1_700_000_000_123))


def test_moments_are_iso_8601() -> None:
    assert stamp(1_705_314_600_000) == "2024-01-15T10:30:00.000Z"


def test_a_torn_last_line_is_ignored_and_cut_off_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    Files().append(path, msgspec.json.encode(FlowEvent("t", "one")))
    with path.open("ab") as torn:
        torn.write(b'{"timestamp":"t","eve')
    assert [line.event for line in read_lines(path, FlowEvent)] == ["one"]
    Files().append(path, msgspec.json.encode(FlowEvent("t", "two")))
    assert [line.event for line in read_lines(path, FlowEvent)] == ["one", "two"]
    assert path.read_bytes().count(b"\n") == 2


def test_a_line_that_the_disk_took_only_a_part_of_is_said_to_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.jsonl"
    write, room = os.write, [8]

    def nearly_full(handle: int, data: bytes) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return write(handle, data[: room.pop()])

    monkeypatch.setattr(os, "write", nearly_full)
    with pytest.raises(Unavailable, match="cannot be written: No space left"):
        Files().append(path, b'{"timestamp":"t","event":"one"}')
    monkeypatch.setattr(os, "write", write)
    Files().append(path, msgspec.json.encode(FlowEvent("t", "two")))
    assert [line.event for line in read_lines(path, FlowEvent)] == ["two"]


def test_whoever_was_stopped_while_appending_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LOCK_PATIENCE", 0.02)
    path = tmp_path / "events.jsonl"
    path.touch(0o600)
    with path.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match=r"events\.jsonl is held by another process"):
            Files().append(path, b"{}")
    Files().append(path, b"{}")
    assert path.read_bytes() == b"{}\n"


def test_a_file_is_replaced_as_a_whole_and_a_full_disk_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    Files().replace(path, b"1")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(Unavailable, match="cannot be written: No space left"):
        Files().replace(path, b"2")
    assert path.read_bytes() == b"1"
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]


def test_what_cannot_be_read_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    (tmp_path / "torn.json").write_text('{"run": "r')
    assert read(tmp_path / "torn.json", RunRecord) is None
    assert read(tmp_path / "gone.json", RunRecord) is None
    assert read_lines(tmp_path / "gone.jsonl", FlowEvent) == []


def test_a_run_is_found_by_any_of_its_ids(tmp_path: Path) -> None:
    home = tmp_path / ".allswell"
    made = RunBase(home, msgspec.structs.replace(record(tmp_path), runs=("r_1", "r_2")))
    made.make(b"steps: []")
    RunBase(home, record(tmp_path, "r_9")).make(b"")
    assert (home / ".gitignore").read_text() == "*\n"
    for name in ("r_1", "r_2"):
        assert find_base(home, name).record == made.record
    assert {one.run for one in all_records(home)} == {"r_1", "r_9"}
    assert made.source.read_bytes() == b"steps: []"
    assert made.shown(made.receipts) == ".allswell/runs/r_1/build/receipts"
    assert made.shown(Path("/elsewhere")) == "/elsewhere"


def test_a_run_that_is_not_there_or_cannot_be_read_is_refused(tmp_path: Path) -> None:
    home = tmp_path / ".allswell"
    (home / "runs" / "r_1").mkdir(parents=True)
    with pytest.raises(Refused, match="no record that can be read"):
        find_base(home, "r_1")
    with pytest.raises(Refused, match="there is no folder of a run r_2"):
        find_base(home, "r_2")
    with pytest.raises(Refused, match="there is no folder"):
        find_base(home, "../..")


def test_only_one_process_runs_it(tmp_path: Path) -> None:
    base = RunBase(tmp_path, record(tmp_path))
    base.make(b"")
    with base.held(), pytest.raises(Refused, match=rf"is running already \(process {os.getpid()}\)"), base.held():
        pass
    with base.held():
        pass
