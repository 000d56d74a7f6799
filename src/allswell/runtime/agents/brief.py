"""What one attempt is told: the prompt, what came before it, and where it works; as text, in files, as places."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from allswell.domain.fleet import AgentSpec, fill
from allswell.domain.handing_over import in_words
from allswell.domain.receipt import Receipt, receipt_id, told
from allswell.engine.handle import Lease
from allswell.runtime.own_files import remove_file, write_file
from allswell.runtime.receipts import Home

_RECEIPT_LINES = 40


@dataclass(frozen=True)
class Brief:
    """What an agent is told about its task."""

    folder: str
    prompt: str
    handover: str
    places: Mapping[str, str]
    prompt_file: Path
    orders_file: Path

    @property
    def work_file(self) -> Path:
        """What a function in a process of its own is told."""
        return self.prompt_file.with_suffix(".work")

    def write(self) -> None:
        """Write the files that it names; `OSError` if that cannot be."""
        for path, text in ((self.prompt_file, self.prompt), (self.orders_file, "")):
            write_file(path, text.encode("utf-8", "surrogateescape"), make=True)

    def remove(self) -> None:
        """Take the files away."""
        for path in (self.prompt_file, self.orders_file, self.work_file):
            with contextlib.suppress(OSError):
                remove_file(path)


def brief_for(spec: AgentSpec, lease: Lease, home: Home, folder: str) -> Brief:
    """The brief of an attempt at the task that is held."""
    handover = in_words(lease.attempt, lease.handover, lease.notes, _of_last_receipt(lease, home))
    payload = lease.payload
    text = "" if payload is None else payload if isinstance(payload, str) else _json(payload)
    base = home.folder / "briefs" / f"{lease.task}.{lease.attempt}"
    orders_file = base.with_name(base.name + ".orders")
    prompt_file = base.with_name(base.name + ".prompt")
    places = {
        "name": lease.name,
        "payload": text,
        "handover": handover,
        "task": lease.task,
        "attempt": str(lease.attempt),
        "agent": lease.agent,
        "role": lease.role,
        "folder": folder,
        "orders_file": str(orders_file),
    }
    prompt = "\n".join(line.rstrip() for line in fill(spec.prompt, places).strip().splitlines())
    while "\n\n\n" in prompt:  # places that were empty leave holes
        prompt = prompt.replace("\n\n\n", "\n\n")
    places |= {"prompt": prompt, "prompt_file": str(prompt_file)}
    return Brief(folder, prompt, handover, places, prompt_file, orders_file)


def _json(payload: object) -> str:
    return msgspec.json.format(msgspec.json.encode(payload), indent=2).decode()


def _of_last_receipt(lease: Lease, home: Home) -> str:
    """Where the last attempt's work is, and how to get at it; its files may be on another machine."""
    if lease.attempt < 2:
        return ""
    found = home.receipts.find(receipt_id(lease.task, lease.attempt - 1))
    return "" if found is None else _lines(found.receipt)


def _lines(receipt: Receipt) -> str:
    lines = [told(receipt)]
    lines += [f"  {command}" for command in (*receipt.advice.look, *receipt.advice.recover, *receipt.advice.resume)]
    lines += [f"  {change.how} {change.path}" for change in receipt.changed[:_RECEIPT_LINES]]
    return "\n".join(lines)
