"""The registrations' file: whole or not at all, for nobody else's eyes, and never misread in silence."""

import json
from pathlib import Path

import pytest

from services.common.errors import ConfigurationError
from services.router.store.file import FileStore
from services.router.store.port import Record

RECORD = Record({"worker_id": "\u00e9", "runtime_config": {"api_key": "k"}}, 1.5)


async def test_the_file_is_for_nobody_else_and_alone(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "a" / "registry.json")
    await store.open()
    await store.put(RECORD)
    assert (tmp_path / "a" / "registry.json").stat().st_mode & 0o777 == 0o600
    assert len(list((tmp_path / "a").iterdir())) == 1


async def test_a_failed_save_leaves_what_was_there(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "registry.json")
    await store.open()
    await store.put(RECORD)
    with pytest.raises(TypeError):
        await store.put(Record({"worker_id": "b", "what": object()}, 1.0))
    assert (await store.load()).changed == [RECORD]
    again = FileStore(tmp_path / "registry.json")
    await again.open()
    assert (await again.load()).changed == [RECORD]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        json.dumps({"version": 9, "workers": []}),
        json.dumps({"version": 1, "workers": [1]}),
        '"\\ud800"',
    ],
)
async def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "registry.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"registry\.json"):
        await FileStore(path).open()
