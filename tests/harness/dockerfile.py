"""What our Dockerfile says that a process without Docker must be told: environment, user, folders, entrypoint, copied files."""

import json
import re
import shlex

from tests.harness.compose import ROOT


def instructions() -> list[tuple[str, str]]:
    """Each with its text, continued lines joined, comments left out."""
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined.splitlines()) if word]


def last_stage() -> list[tuple[str, str]]:
    """The instructions of the image that is run."""
    found = instructions()
    start = max(index for index, (word, _) in enumerate(found) if word == "FROM")
    return found[start:]


def said(word: str) -> str:
    """The text of the last stage's one instruction of that name."""
    (text,) = [text for each, text in last_stage() if each == word]
    return text


def environment() -> dict[str, str]:
    """`ENV`, with `$PATH` as the machine's usual one."""
    pairs = (part.partition("=") for part in shlex.split(said("ENV")))
    return {name: value.replace("$PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin") for name, _, value in pairs}


def entrypoint() -> list[str]:
    """What a command is given to."""
    words: list[str] = json.loads(said("ENTRYPOINT"))
    return words


def user() -> int:
    """Whom it runs as."""
    return int(said("USER").partition(":")[0])


def folders() -> set[str]:
    """Those that are made for its user, from which a new volume takes its owner."""
    return {word for _, text in last_stage() for word in re.findall(r"\s(/[\w/]+)", text) if "install -d" in text}


def copied() -> list[str]:
    """What comes from the checkout."""
    found = [text.split() for word, text in instructions() if word == "COPY"]
    return [source for words in found if not words[0].startswith("--from") for source in words[:-1]]
