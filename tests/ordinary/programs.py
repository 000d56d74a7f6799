"""Twenty ordinary programs, as they print and work.

They are the real ones where every machine has them, else like them in what they print and do meanwhile.

    python programs.py NAME SECONDS PACE

`SECONDS` is how long it goes on, `PACE` how many of them pass between two signs of life. Those in `HANGING` show no
progress at all, however long one waits.
"""

from __future__ import annotations

import http.server
import itertools
import random
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

HANGING = ("ssh_prompt", "sleeper", "clock_watcher")
_BURN = 0.4
"""The share of a processor that silent work takes."""


class Pace:
    """How long to go on, and how long to wait between two steps."""

    def __init__(self, seconds: float, step: float) -> None:
        self.step = step
        self.end = time.monotonic() + seconds

    def steps(self, part: float = 1.0) -> Iterator[int]:
        """Count from 1, a step at a time; `part` of a step for what goes faster."""
        for number in itertools.count(1):
            if time.monotonic() >= self.end:
                return
            yield number
            time.sleep(self.step * part)

    @property
    def left(self) -> float:
        return max(self.end - time.monotonic(), 0.1)


def say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def tell(text: str, end: str = "\n") -> None:
    sys.stderr.write(text + end)
    sys.stderr.flush()


def make(pace: Pace) -> None:
    """The real one."""
    count = int(pace.left / pace.step) + 1
    rule = f'%.o:\n\t@echo "  CC      $@"\n\t@sleep {pace.step}\n'
    Path("Makefile").write_text(f".PHONY: all\nall: {' '.join(f'part{number}.o' for number in range(count))}\n{rule}")
    subprocess.run(["make", "--no-print-directory"], check=True)


def pytest(pace: Pace) -> None:
    """The real one, as `pytest -v`."""
    count = int(pace.left / pace.step) + 1
    test = f"@pytest.mark.parametrize('n', range({count}))\ndef test_slow(n):\n    time.sleep({pace.step})\n"
    Path("test_slow.py").write_text(f"import time\nimport pytest\n\n{test}")
    flags = ("-v", "-p", "no:cacheprovider", "--disable-plugin-autoload")
    words = [sys.executable, "-m", "pytest", *flags, "test_slow.py"]
    subprocess.run(words, check=True)


def npm(pace: Pace) -> None:
    for number in pace.steps(0.1):
        tell("\x1b[1G\x1b[0K" + "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"[number % 10], end="")
        if number % 10 == 0:
            tell(f"\x1b[1G\x1b[0Knpm http fetch GET 200 /left-pad-{number // 10} {number % 83}ms (cache miss)")
    say("\nadded 312 packages in 14s")


def ffmpeg(pace: Pace) -> None:
    tell("Input #0, matroska,webm, from 'talk.mkv':\n  Duration: 00:48:12.04, start: 0.000000, bitrate: 1312 kb/s")
    with Path("talk.mp4").open("ab") as out:
        for number in pace.steps(0.5):
            out.write(bytes(4_096))
            out.flush()
            tell(f"\rframe={number * 15:5} fps= 30 q=28.0 size={number * 4:8}kB time=00:00:{number % 60:02}.00", end="")
    tell("")


def tqdm(pace: Pace) -> None:
    with Path("results.jsonl").open("a") as out:
        for number in pace.steps():
            bar = "█" * (number % 10)
            tell(f"\r{number % 100:3}%|{bar:10}| {number}/9999 [00:{number % 60:02}<1:02:03,  1.00s/it]", end="")
            out.write(f'{{"item": {number}}}\n')
            out.flush()
    tell("")


def ssh_prompt(pace: Pace) -> None:
    """It asks for a password that is never given."""
    tell("deploy@build-7's password: ", end="")
    time.sleep(pace.left)


def training(pace: Pace) -> None:
    for number in pace.steps():
        say(f"epoch {number} loss={2.5 / (number + 1):.4f} lr=0.0003 ({pace.step:.1f}s)")


def nbconvert(pace: Pace) -> None:
    """It is silent while its kernel, a process of its own, computes."""
    tell("[NbConvertApp] Converting notebook report.ipynb to notebook")
    tell("[NbConvertApp] Executing notebook with kernel: python3")
    _compute_below(pace)
    tell("[NbConvertApp] Writing 48123 bytes to report.nbconvert.ipynb")


def repl(pace: Pace) -> None:
    """A real one, into which somebody types."""
    words = [sys.executable, "-i", "-q", "-c", "import math"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, text=True) as python:
        assert python.stdin is not None
        for number in pace.steps():
            python.stdin.write(f"print('row', {number}, math.factorial({number}) % 1009)\n")
            python.stdin.flush()
        python.stdin.close()


def server(pace: Pace) -> None:
    """A real one, that is asked for something now and then, and logs it."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        for number in pace.steps():
            with urllib.request.urlopen(f"http://127.0.0.1:{serving.server_port}/orders/{1_000 + number}") as answer:
                answer.read()
        serving.shutdown()


def sleeper(pace: Pace) -> None:
    """The real one."""
    subprocess.run(["sleep", str(pace.left)], check=True)


def silent_link(pace: Pace) -> None:
    say("[ 98%] Building CXX object src/main.o\n[ 99%] Linking CXX executable app")
    _compute_below(pace)
    say("[100%] Built target app")


def rsync(pace: Pace) -> None:
    say("sending incremental file list")
    Path("copy").mkdir()
    for number in pace.steps(0.5):
        if number % 4 == 1:
            say(f"\nphotos/img_{number}.jpg")
        with Path(f"copy/img_{number // 4}.jpg").open("ab") as out:
            out.write(bytes(1_024))
        say(f"\r     {number * 32_768:,}  {number % 4 * 25}%   11.32MB/s    0:00:{number % 60:02}", end="")


def curl(pace: Pace) -> None:
    tell("  % Total    % Received % Xferd  Average Speed   Time    Time     Time  Current")
    tell("                                 Dload  Upload   Total   Spent    Left  Speed")
    with Path("image.iso").open("ab") as out:
        for number in pace.steps(0.5):
            out.write(bytes(2_048))
            out.flush()
            tell(
                f"\r  3  640M    3 {number}k    0     0  1843k      0  0:05:55  0:00:{number % 60:02}  0:05:43 1910k",
                end="",
            )
    tell("")


def streamed_answer(pace: Pace) -> None:
    """A model's answer in plain text: word after word, seldom an end of line."""
    words = ("the", "parser", "keeps", "a", "stack", "of", "open", "groups", "and", "closes", "each", "when", "its")
    draw = random.Random(7)
    for number in pace.steps(0.04):
        say(f"{draw.choice(words)} ", end="\n\n" if number % 150 == 0 else "")


def docker_build(pace: Pace) -> None:
    say("#1 [internal] load build definition from Dockerfile\n#1 DONE 0.0s")
    for number in pace.steps():
        part = number // 8
        if number % 8 == 0:
            say(f"#{part + 4} DONE {number}.3s\n#{part + 5} [{part + 1}/99] RUN make part-{part}")
        say(f"#{part + 4} {number % 8}.{number % 10}32 Collecting library{number}")


def apt(pace: Pace) -> None:
    say("Reading package lists... Done\nBuilding dependency tree... Done")
    for number in pace.steps():
        say(f"Get:{number} stable/main amd64 libthing{number} amd64 1.{number}-2 [{number * 37 % 900} kB]")


def clock_watcher(pace: Pace) -> None:
    """It waits for something that never comes, and tells the time."""
    for _ in pace.steps():
        say(time.strftime("%a %b %d %H:%M:%S UTC %Y  still waiting for the lock", time.gmtime()))


def migration(pace: Pace) -> None:
    say("Operations to perform:\n  Apply all migrations: auth, orders\nRunning migrations:")
    say("  Applying orders.0007_copy_rows...")
    for number in pace.steps():
        say(f"    copied {number * 7_300:,} of 48,000,000 rows")


def git(pace: Pace) -> None:
    """The real one, which clones again and again."""
    quiet = ["git", "-c", "user.name=grace", "-c", "user.email=grace@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run([*quiet, "init", "-q", "origin"], check=True)
    subprocess.run([*quiet, "-C", "origin", "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    for number in pace.steps():
        subprocess.run([*quiet, "clone", "--progress", "origin", f"copy-{number}"], check=True)
        shutil.rmtree(f"copy-{number}")


PROGRAMS: dict[str, Callable[[Pace], None]] = {
    program.__name__: program
    for program in (
        *(make, pytest, npm, ffmpeg, tqdm, ssh_prompt, training, nbconvert, repl, server),
        *(sleeper, silent_link, rsync, curl, streamed_answer, docker_build, apt, clock_watcher, migration, git),
    )
}


def _compute_below(pace: Pace) -> None:
    """Compute in a child that says nothing, for a share of one processor."""
    subprocess.run([sys.executable, __file__, "_compute", str(pace.left), str(pace.step)], check=True)


def _compute(pace: Pace) -> None:
    while time.monotonic() < pace.end:
        until = time.process_time() + 0.1 * _BURN
        while time.process_time() < until:
            pass
        time.sleep(0.1 * (1 - _BURN))


if __name__ == "__main__":
    called, seconds, step = sys.argv[1:]
    (_compute if called == "_compute" else PROGRAMS[called])(Pace(float(seconds), float(step)))
