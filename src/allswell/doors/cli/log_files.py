"""The files with what the attempts at a task have printed, found beside the store and opened to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from allswell.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

    from allswell.domain.task import Task
    from allswell.runtime.attempt.log import LogReader

Stream = Literal["stdout", "stderr"]


def files_of(home: Path, task: Task) -> dict[int, dict[str, Path]]:
    """The files of each attempt; a step of a flow has them in the folder of its run."""
    from allswell.doors.printed import Printed

    return Printed(home, task).attempts()


class OpenLog:
    """The files of an attempt, open for as long as they are read; stdout first."""

    def __init__(self, files: dict[str, Path]) -> None:
        self._files = files
        self.readers: list[tuple[Stream, LogReader]] = []

    def __enter__(self) -> list[tuple[Stream, LogReader]]:
        from allswell.runtime.attempt.log import LogReader

        names: tuple[Stream, ...] = ("stdout", "stderr")
        for stream in names:
            if stream in self._files:
                try:
                    self.readers.append((stream, LogReader(self._files[stream])))
                except FileNotFoundError:
                    continue  # it was empty, and has ended just now
                except OSError as error:
                    self.__exit__()
                    text = f"{self._files[stream]} cannot be read: {error.strerror or error}"
                    raise Refused("no_log", text, where="TASK") from None
        return self.readers

    def __exit__(self, *raised: object) -> None:
        for _, reader in self.readers:
            reader.close()
