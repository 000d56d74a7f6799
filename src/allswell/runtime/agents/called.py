"""The process in which a sync function is called: `python -m allswell.runtime.agents.called module:name [folder]`.

It speaks to its supervisor through the attempt's socket, as every agent does: what the function returns is its `done`,
what it raises its `fail`. Its module is looked for in the folder, where one is named, before what is installed.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import msgspec

from allswell.domain.service.classify import failure_of
from allswell.domain.values import to_json
from allswell.errors import AllswellError, Refused
from allswell.runtime import agent_socket
from allswell.runtime.agent_socket import VARIABLE, say
from allswell.runtime.agents.function import SyncWork, TaskBrief, load_function
from allswell.runtime.calls import contained
from allswell.runtime.guard.transport import ExchangeLedger, in_ledger

TOLD = "ALLSWELL_WORK"
"""The variable that names the file with what the function is told."""


def main() -> int:
    """Call the function that the command line names, once."""
    answer: agent_socket.AnyWord
    socket = os.environ[VARIABLE]
    told = msgspec.json.decode(Path(os.environ[TOLD]).read_bytes(), type=TaskBrief)
    work, ledger = SyncWork(told, socket), ExchangeLedger(bodies=False)
    in_ledger.set(ledger)
    sys.path[:0] = sys.argv[2:]
    try:
        result = contained(load_function(sys.argv[1]))(work)
    except AllswellError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the function raises is its failure
        answer, code = _failed(error), 1
    else:
        try:
            answer, code = agent_socket.DoneMessage(result=msgspec.Raw(to_json(result, "what it returned").encode())), 0
        except Refused as error:
            answer, code = _failed(error), 1
    if ledger.tokens is not None:
        work.spend(tokens_in=ledger.tokens.prompt, tokens_out=ledger.tokens.completion)
    if not (work.is_over and code == 0):
        say(socket, answer)
    return code


def _failed(error: Exception) -> agent_socket.AnyWord:
    traceback.print_exception(error)
    return agent_socket.FailMessage(failure=failure_of(error))


if __name__ == "__main__":
    sys.exit(main())
