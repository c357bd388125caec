"""The guide and the example name every setting, and none that does not exist."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from services.common import settings

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs" / "guides" / "settings.md"
EXAMPLE = ROOT / "speedinfer.example.toml"


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, field.default


def rows() -> dict[str, str]:
    return dict(re.findall(r"^\| `([a-z_.]+)` \| ([^|]+?) \|", GUIDE.read_text(), re.MULTILINE))


def test_the_guide_names_every_setting_and_no_other() -> None:
    assert set(rows()) == {name for name, _ in leaves(settings.Settings)}


def test_the_guide_has_the_defaults() -> None:
    said = rows()
    wrong = {
        name: (said[name], default)
        for name, default in leaves(settings.Settings)
        if isinstance(default, int | float)
        and said[name] != (str(default).lower() if isinstance(default, bool) else f"{default:.10g}")
    }
    assert wrong == {}


def test_the_example_is_read_and_says_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(settings.PREFIX)]:
        monkeypatch.delenv(name)
    read = settings.load(EXAMPLE, {})
    plain = settings.Settings()
    assert read.model_dump(exclude={"billing"}) == plain.model_dump(exclude={"billing"})
    assert read.database_url == plain.database_url
