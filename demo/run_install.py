"""Installs the demo's parts into `.venv-demo`: the language model, and then Triton. Each only once.

    .venv/bin/python demo/run_install.py            both
    .venv/bin/python demo/run_install.py llm        only the language model

A part that does not exist for a machine is named and left out; with REQUIRE_ALL=1 that is a failure. Imported by
`demo/run.py`, which installs the second part while the first one already answers.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

if not __package__:  # run as a script: our folder is on the path, its parent is not
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from demo.triton_install import unavailable_reason

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv-demo"
PYTHON = VENV / "bin" / "python"
# What each part is called, for people.
PARTS = {
    "llm": "the language model and llama.cpp (150 MB)",
    "triton": "Triton Inference Server (50 MB)",
}


class PartMissing(Exception):
    """A part cannot be had here; the text says why."""


def installed(part: str) -> bool:
    """Whether the part is there as its requirement file says now."""
    stamp = _stamp(part)
    return stamp.exists() and stamp.read_text() == _digest(part)


def install(part: str, output: IO[bytes] | None = None) -> None:
    """Install a part if it is not there. pip's progress goes to `output`, default standard output.

    PartMissing where it cannot be had. Two at once for different parts are fine once the environment is made.
    """
    make_environment()
    if installed(part):
        return
    if part == "triton" and (reason := unavailable_reason(VENV, installed=False)):
        raise PartMissing(reason)
    # Our own pip installs into the other environment, which then needs none. Only wheels: nothing is ever compiled here.
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(PYTHON)),
        *("install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile"),
        *("-r", str(_requirements(part))),
    ]
    code = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT if output else None, check=False).returncode
    if code:
        raise PartMissing(f"pip ended with status {code} (no wheel for this machine, or no connection)")
    _stamp(part).write_text(_digest(part))


def make_environment() -> None:
    """Make `.venv-demo` with the Python that runs us, if there is none."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(VENV)], check=True)


def _requirements(part: str) -> Path:
    return ROOT / "requirements" / f"demo-{part}.txt"


def _stamp(part: str) -> Path:
    return VENV / f".{part}-installed"


def _digest(part: str) -> str:
    return hashlib.sha256(_requirements(part).read_bytes()).hexdigest()


def main() -> None:
    missing = False
    for part in sys.argv[1:] or PARTS:
        if installed(part):
            continue
        print(f"installing {PARTS[part]} into {VENV.name} ...", flush=True)
        try:
            install(part)
        except PartMissing as reason:
            missing = True
            print(f"left out: {PARTS[part]}: {reason}", file=sys.stderr)
    if missing and os.environ.get("REQUIRE_ALL") == "1":
        sys.exit("REQUIRE_ALL=1: nothing may be left out")


if __name__ == "__main__":
    main()
