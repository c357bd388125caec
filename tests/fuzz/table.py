"""The targets: what each one checks is said in its module. One corpus folder stands for each."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tests.fuzz.minimise import Check

FOLDER = Path(__file__).resolve().parent
CORPUS = FOLDER / "corpus"
# Words that inputs are made with besides what the fuzzer finds itself.
WORDS = FOLDER / "words.dict"
NAMES = (
    "sse", "stream", "frames", "answer", "body", "usage_frame", "triton_text", "triton_tensors", "triton_answer", "template",
    "safe_text",
)  # fmt: skip
# The one that must fail.
PLANTED = "planted"


def check_of(name: str) -> Check:
    """The function that states the target's promise. Imports what it looks at."""
    check: Callable[[bytes], None] = import_module(f"tests.fuzz.targets.{name}").check
    return check


def seeds(name: str) -> list[Path]:
    """The files of a target's corpus."""
    return sorted(path for path in (CORPUS / name).iterdir() if path.is_file())
