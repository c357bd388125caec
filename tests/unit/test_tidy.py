"""The rules of the house that a machine can check."""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 450
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "base", "misc"}
LOCK_NAMES = {"uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "package-lock.json"}


def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def ours(*folders: str) -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders]


def test_no_file_outgrows_its_noun() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in ours("services", "tests", "demo", "tools", "benchmarks")
        if (lines := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert long == {}


def test_modules_are_named_for_what_they_hold() -> None:
    vague = [path for path in ours("services") if path.stem in VAGUE_NAMES]
    assert vague == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in ours("services", "tests", "demo", "tools", "benchmarks")
        if path.name != "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_init_files_are_empty() -> None:
    # The stand-in for the LLM API has the shape of a package that is not ours.
    inits = [path for path in ours("services", "tests") if path.name == "__init__.py" and "llm_api" not in path.parts]
    assert [path for path in inits if path.stat().st_size] == []


def floats(path: Path) -> Iterator[str]:
    """Places where a float can come into an amount. Seconds may be floats; they end in `_s` or speak of time."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("float", "round"):
            yield f"{path.name}:{node.lineno}: {node.func.id}()"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and not _is_path(node):
            yield f"{path.name}:{node.lineno}: /"


def _is_path(node: ast.BinOp) -> bool:
    return isinstance(node.right, ast.Constant | ast.Name | ast.JoinedStr | ast.Attribute) and (
        isinstance(node.right, ast.JoinedStr)
        or (isinstance(node.right, ast.Constant) and isinstance(node.right.value, str))
    )


MONEY_MODULES = [
    ROOT / "services/common/money.py",
    *(ROOT / "services/billing" / f"{name}.py" for name in ("price", "hold", "ledger", "reservation", "limits")),
]


@pytest.mark.parametrize("path", MONEY_MODULES, ids=lambda path: path.stem)
def test_money_modules_hold_no_floats(path: Path) -> None:
    assert list(floats(path)) == []
    annotations = re.findall(r":\s*float\b|->\s*float\b", path.read_text())
    assert annotations == []


def test_no_registry_address_and_no_lock_with_one() -> None:
    assert [path.name for path in tracked() if path.name in LOCK_NAMES] == []
    # Put together here, so that this file does not carry them itself.
    needle = re.compile(
        "|".join(("index" + r"-url\s+\S", "python" + "hosted", "registry" + r"\.npm", "pypi" + r"\.org"))
    )
    carrying = [
        str(path.relative_to(ROOT))
        for path in tracked()
        if path.suffix not in (".png", ".gguf")
        and path != Path(__file__)
        and needle.search(path.read_text(errors="ignore"))
    ]
    assert carrying == []


def test_requirements_are_pinned_with_hashes() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text()
        pins = re.findall(r"^[A-Za-z0-9][^#\n]*==", text, re.MULTILINE)
        assert pins, path.name
        assert text.count("--hash=sha256:") >= len(pins), path.name


def test_run_time_dependencies_are_few_and_reasoned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[\[<>=;~ ]", line)[0] for line in project["dependencies"]]
    assert len(names) <= 20
    reasons = (ROOT / "docs/decisions/0002-libraries.md").read_text()
    assert [name for name in names if name not in reasons] == []


def test_what_is_not_python_is_packaged_too() -> None:
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    listed = {
        path
        for package, patterns in packaged.items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    needed = {path for path in tracked() if path.relative_to(ROOT).parts[0] == "services" and path.suffix != ".py"}
    assert needed - listed == set()
    assert needed
