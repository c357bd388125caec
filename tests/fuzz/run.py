"""One target: searched for inputs that break its promise, or one input replayed.

    python -m tests.fuzz.run sse --seconds 60      # needs atheris; guided by coverage, starts from the corpus
    python -m tests.fuzz.run sse --replay FILE     # needs nothing

A find goes to build/fuzz/<target>/, as found and made smaller; the command that replays it is printed, and the exit code is 1.
What a search adds to the corpus is kept in a folder of its own and thrown away, unless --keep names one.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from tests.fuzz import table
from tests.fuzz.minimise import failure_of, minimised

ROOT = table.FOLDER.parents[1]
FINDS = ROOT / "build" / "fuzz"
MAX_INPUT_BYTES = 4096
# No input of that size takes a second; one that takes so many is a find.
INPUT_TIMEOUT_S = 10
MEMORY_MB = 1024
# What a search may take beyond its own time: imports, the corpus, the last input.
MARGIN_S = 60


def can_search() -> bool:
    """Whether the guided search exists here."""
    return importlib.util.find_spec("atheris") is not None


def search(
    name: str, seconds: int, *, seed: int, keep: Path | None = None, finds: Path = FINDS
) -> tuple[list[Path], str]:
    """Search in a process of its own; the finds made smaller, and what the fuzzer said."""
    folder = finds / name
    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    with tempfile.TemporaryDirectory() as scratch:
        command = [
            sys.executable, "-m", "tests.fuzz.run", name, "--within",
            f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={MAX_INPUT_BYTES}", f"-timeout={INPUT_TIMEOUT_S}",
            f"-rss_limit_mb={MEMORY_MB}", f"-dict={table.WORDS}", f"-artifact_prefix={folder}{os.sep}", "-print_final_stats=1",
            str(keep or scratch), str(table.CORPUS / name),
        ]  # fmt: skip
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=seconds + MARGIN_S, check=False
        )
    found = sorted(set(folder.iterdir()) - before)
    assert found or done.returncode == 0, f"the search itself failed:\n{done.stderr[-4000:]}"
    return [_smaller(name, path) for path in found], done.stderr


def report(name: str, path: Path) -> str:
    """What to say of a find."""
    failure = failure_of(table.check_of(name), path.read_bytes())
    said = "".join(traceback.format_exception(failure)[-4:]) if failure else "(no exception: too slow, or too large)"
    return f"{path}\n{said}replay: {Path(sys.executable)} -m tests.fuzz.run {name} --replay {path}"


def _smaller(name: str, path: Path) -> Path:
    if not path.name.startswith("crash-"):
        return path
    smaller = path.with_name(f"smaller-{path.name}")
    smaller.write_bytes(minimised(table.check_of(name), path.read_bytes()))
    return smaller


def _search_within(name: str, arguments: list[str]) -> None:
    """The search itself, in this process, which it ends."""
    import atheris

    target = f"tests.fuzz.targets.{name}"
    # Only what the target looks at tells of coverage: the more is told, the slower it is.
    __import__("tests.fuzz.choices")
    with atheris.instrument_imports(include=list(_instrumented(name)), enable_loader_override=False):
        __import__(target)
    atheris.Setup([sys.argv[0], *arguments], table.check_of(name))
    atheris.Fuzz()


def _instrumented(name: str) -> tuple[str, ...]:
    """The target's own list, read without importing it."""
    import ast

    tree = ast.parse((table.FOLDER / "targets" / f"{name}.py").read_text())
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "INSTRUMENTED"
        ):
            listed: tuple[str, ...] = ast.literal_eval(node.value)
            return listed
    raise AssertionError(f"{name} does not say what it looks at")


def main() -> int:
    """The command."""
    if "--within" in sys.argv:
        _search_within(sys.argv[1], sys.argv[sys.argv.index("--within") + 1 :])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=(*table.NAMES, table.PLANTED))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--keep", type=Path, help="a folder for the inputs that reached something new")
    parser.add_argument("--replay", type=Path, help="check one input and search nothing")
    arguments = parser.parse_args()
    if arguments.replay is not None:
        table.check_of(arguments.target)(arguments.replay.read_bytes())
        print("the promise holds")
        return 0
    if not can_search():
        parser.error("atheris is not installed here; only --replay works")
    found, said = search(arguments.target, arguments.seconds, seed=arguments.seed, keep=arguments.keep)
    print(*[line for line in said.splitlines() if line.startswith("stat::") or "\tDONE" in line], sep="\n")
    for path in found:
        print(report(arguments.target, path))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
