"""The files that a step leaves: looked for when it ends, measured, and known again when a run goes on."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from allswell.domain.capture import PartialArtifact
from allswell.domain.step_receipt import Artifact
from allswell.errors import Refused
from allswell.flows.spec import Output


def collect(folder: Path, outputs: tuple[Output, ...]) -> tuple[Artifact, ...]:
    """Every output of a step that has ended well; `Refused` where one is missing or lies outside."""
    return tuple(_measured(folder, output) for output in outputs)


def _measured(folder: Path, output: Output) -> Artifact:
    path = folder / output.path
    try:
        found = path.resolve(strict=True)
    except OSError:
        text = f"the step ended well and has not left its output {output.path}"
        raise Refused("no_output", text, where=output.path) from None
    if not found.is_relative_to(folder.resolve()):
        text = f"the output {output.path} is a link that leads outside the flow's folder, to {found}"
        raise Refused("bad_output", text, where=output.path)
    if not found.is_file():
        raise Refused("bad_output", f"the output {output.path} is not a file", where=output.path)
    digest, size = _digest(found)
    return Artifact(output.name, output.path, digest, size)


def _digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256")
        return digest.hexdigest(), opened.tell()


def changed(folder: Path, artifact: Artifact) -> str | None:
    """Why a file is not what a step left; None if it is."""
    try:
        digest, _ = _digest(folder / artifact.path)
    except OSError:
        return f"{artifact.path} is gone"
    return None if digest == artifact.sha256 else f"{artifact.path} is not what it was: its content has changed"


def partial(folder: Path, outputs: tuple[Output, ...]) -> tuple[PartialArtifact, ...]:
    """How far the outputs of a step that was cut off have come; whether one is complete nobody knows, so it is not."""
    found = []
    for output in outputs:
        try:
            size = (folder / output.path).stat().st_size
        except OSError:
            continue
        found.append(PartialArtifact(output.path, complete=False, bytes_written=size))
    return tuple(found)


def flush(folder: Path, outputs: tuple[Output, ...]) -> None:
    """Bring what was written of the outputs to the disk."""
    for output in outputs:
        try:
            handle = os.open(folder / output.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.fsync(handle)
        except OSError:
            pass
        finally:
            os.close(handle)
