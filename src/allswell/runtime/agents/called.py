"""The process in which a sync function is called: `python -m allswell.runtime.agents.called module:name`.

It speaks to its supervisor through the attempt's socket, as every agent does: what the function returns is its `done`,
what it raises its `fail`.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import msgspec

from allswell.domain.classify import failure_of
from allswell.domain.plain_data import to_json
from allswell.errors import AllswellError, Refused
from allswell.runtime.agents.function import load_function
from allswell.runtime.agents.work import SyncWork, TaskBrief
from allswell.runtime.contained import contained
from allswell.runtime.guard.ledger import ExchangeLedger, in_ledger
from allswell.runtime.speaking import words
from allswell.runtime.speaking.client import VARIABLE, say

TOLD = "ALLSWELL_WORK"
"""The variable that names the file with what the function is told."""


def main() -> int:
    """Call the function that the command line names, once."""
    answer: words.AnyWord
    socket = os.environ[VARIABLE]
    told = msgspec.json.decode(Path(os.environ[TOLD]).read_bytes(), type=TaskBrief)
    work, ledger = SyncWork(told, socket), ExchangeLedger(bodies=False)
    in_ledger.set(ledger)
    try:
        result = contained(load_function(sys.argv[1]))(work)
    except AllswellError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the function raises is its failure
        answer, code = _failed(error), 1
    else:
        try:
            answer, code = words.Done(result=msgspec.Raw(to_json(result, "what it returned").encode())), 0
        except Refused as error:
            answer, code = _failed(error), 1
    if ledger.tokens is not None:
        work.spend(tokens_in=ledger.tokens.prompt, tokens_out=ledger.tokens.completion)
    say(socket, answer)
    return code


def _failed(error: Exception) -> words.AnyWord:
    traceback.print_exception(error)
    return words.Fail(failure=failure_of(error))


if __name__ == "__main__":
    sys.exit(main())
