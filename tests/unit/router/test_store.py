"""The registrations' file: whole or not at all, for nobody else's eyes, and never misread in silence."""

import json
from pathlib import Path

import pytest

from services.common.errors import ConfigurationError
from services.router.store.file import FileStore
from services.router.store.port import Record

RECORDS = [Record({"worker_id": "é", "runtime_config": {"api_key": "k"}}, 1.5, True), Record({"worker_id": "b"}, 2.0)]


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "a" / "registry.json")
    assert store.load() == []
    store.save(RECORDS)
    assert FileStore(tmp_path / "a" / "registry.json").load() == RECORDS
    store.save(RECORDS[:1])
    assert store.load() == RECORDS[:1]
    assert (tmp_path / "a" / "registry.json").stat().st_mode & 0o777 == 0o600
    assert len(list((tmp_path / "a").iterdir())) == 1


def test_a_failed_save_leaves_what_was_there(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "registry.json")
    store.save(RECORDS)
    with pytest.raises(TypeError):
        store.save([Record({"worker_id": object()}, 1.0)])
    assert store.load() == RECORDS
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
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "registry.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"registry\.json"):
        FileStore(path).load()
