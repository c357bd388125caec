"""`make test`: the suite as two pytest processes at the same time, and one last line that sums up both.

    .venv/bin/python -m tests.suite -q -ra -m "not fleet" [whatever else pytest takes]

Half of the suite's time is waiting: for starts, deadlines, kills. What is in one half runs one after the other, as ever, so
whatever measures or strains the machine is together in the second. The first half's output is shown as it comes, the
second's whole when both have ended. Arguments that name a file or folder run it in one process, as pytest alone would.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent.parent
# Folders of the suite, of about the same time; storms, crowds, kills and footprints are all in the second, one after another.
HALVES = (
    ("tests/unit", "tests/contract", "tests/integration", "tests/faults", "tests/sdk"),
    ("tests/fuzz", "tests/blackbox", "tests/sidecars", "tests/ledger", "tests/chaos"),
)
# The order in which pytest says them.
OUTCOMES = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")
# pytest's exit codes.
OK, FAILED, INTERRUPTED, NOTHING_RUN = 0, 1, 2, 5
# Options whose value may look like a path.
TAKE_A_WORD = ("-k", "-m", "-p", "-o", "-c", "-W")
# Enough of an output to have its last line.
TAIL_BYTES = 4_096


def names_paths(arguments: Sequence[str], root: Path = ROOT) -> bool:
    """Whether pytest's arguments say themselves which files or folders to run."""
    words = [word for before, word in zip(("", *arguments), arguments, strict=False) if before not in TAKE_A_WORD]
    return any(not word.startswith("-") and (root / word.partition("::")[0]).exists() for word in words)


def outcomes(output: str) -> Counter[str]:
    """How many passed, failed and so on, by the last line of pytest's output; empty if no test ran."""
    lines = output.strip().splitlines() or [""]
    found = re.findall(rf"(\d+) ({'|'.join(OUTCOMES)})s?\b", lines[-1])
    return Counter({word: int(number) for number, word in found})


def exit_code(codes: Sequence[int]) -> int:
    """One for both: of a half of which nothing was chosen it does not count, and whatever is wrong in either does."""
    told = [code for code in codes if code != NOTHING_RUN]
    # A process that a signal ended has a negative one.
    return next((code if code > 0 else FAILED for code in told if code != OK), OK) if told else NOTHING_RUN


def summary(counts: Counter[str], code: int, seconds: float) -> str:
    """The last line, as pytest writes it."""
    words = [
        f"{number} {word}{'s' if word in ('warning', 'error') and number > 1 else ''}"
        for word in OUTCOMES
        if (number := counts[word])
    ]
    long = f" ({timedelta(seconds=int(seconds))})" if seconds >= 60 else ""
    return f"{', '.join(words) or ('no tests ran' if code == NOTHING_RUN else 'no failure')} in {seconds:.2f}s{long}"


def run(halves: Sequence[Sequence[str]], arguments: Sequence[str], root: Path = ROOT) -> int:
    """Run them at the same time and show what they say; the exit code."""
    began = time.monotonic()
    first, second = halves
    with tempfile.TemporaryFile() as kept:
        print(f"at the same time, shown afterwards: {' '.join(second)}", flush=True)
        beside = _pytest(second, arguments, root, kept)
        shown = _pytest(first, arguments, root, subprocess.PIPE)
        try:
            told = [_relay(shown.stdout)]
            codes = [shown.wait(), beside.wait()]
        except KeyboardInterrupt:
            # The terminal has told them, too; they end by themselves and say how far they came.
            told = [_relay(shown.stdout)]
            codes = [shown.wait() or INTERRUPTED, beside.wait() or INTERRUPTED]
        finally:
            for process in (shown, beside):
                if process.poll() is None:
                    process.terminate()
                    process.wait()
            if shown.stdout is not None:
                shown.stdout.close()
        kept.seek(0)
        print(f"\nat the same time: {' '.join(second)}", flush=True)
        told.append(_relay(kept))
    counts = [_counted(*each) for each in zip(told, codes, strict=True)]
    code = exit_code(codes)
    print(summary(sum(counts, Counter()), code, time.monotonic() - began), flush=True)
    return code


def _counted(told: str, code: int) -> Counter[str]:
    """The outcomes of a half; one that ended badly and does not say why (it was killed) is an error."""
    counts = outcomes(told)
    if code not in (OK, NOTHING_RUN) and not (counts["failed"] or counts["error"]):
        counts["error"] += 1
    return counts


def _pytest(
    paths: Sequence[str], arguments: Sequence[str], root: Path, output: IO[bytes] | int
) -> subprocess.Popen[bytes]:
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    command = [sys.executable, "-m", "pytest", *colour, *arguments, *paths]
    return subprocess.Popen(command, cwd=root, stdout=output, stderr=subprocess.STDOUT)


def _relay(output: IO[bytes] | None) -> str:
    """Write it all to our own output as it comes; its end, without colours."""
    assert output is not None, "it is a file or a pipe"
    tail = b""
    while piece := os.read(output.fileno(), 65_536):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        tail = (tail + piece)[-TAIL_BYTES:]
    return re.sub(r"\x1b\[[\d;]*m", "", tail.decode(errors="replace"))


def _end(_number: int, _frame: object) -> NoReturn:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    if names_paths(sys.argv[1:]):
        sys.exit(subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:]], cwd=ROOT, check=False).returncode)
    sys.exit(run(HALVES, sys.argv[1:]))
