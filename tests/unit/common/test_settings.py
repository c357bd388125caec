"""A wrong setting is named, never silently a default."""

from pathlib import Path

import pytest

from services.common.errors import ConfigurationError
from services.common.settings import load


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "speedinfer.toml"
    path.write_text(text)
    return path


def test_defaults_are_those_of_the_contract(tmp_path: Path) -> None:
    settings = load(write(tmp_path, ""), {})
    assert settings.edge.listen == "127.0.0.1:8080"
    assert settings.edge.admin_listen == "127.0.0.1:8081"
    assert settings.router_target == "127.0.0.1:50051"
    assert settings.billing_target == "127.0.0.1:50052"
    assert settings.database_url == "sqlite:///.speedinfer/billing.db"


def test_variables_win_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, '[edge]\nlisten = "127.0.0.1:1"\nadmin_listen = "127.0.0.1:2"\n')
    monkeypatch.setenv("SPEEDINFER_EDGE__LISTEN", "127.0.0.1:3")
    settings = load(path)
    assert (settings.edge.listen, settings.edge.admin_listen) == ("127.0.0.1:3", "127.0.0.1:2")


def test_a_nested_limit_can_be_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEEDINFER_EDGE__LIMITS__DRAIN_S", "7")
    assert load(write(tmp_path, "")).edge.limits.drain_s == 7


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("dta_dir = 'x'", "dta_dir"),
        ("[edge]\nport = 1", "edge.port"),
        ("[edge.limits]\nmax_body_bytes = 0", "edge.limits.max_body_bytes"),
        ("[billing.limits]\nlease_s = 'soon'", "billing.limits.lease_s"),
        ("[edge.limits]\nrequest_timeout_s = inf", "edge.limits.request_timeout_s"),
        ("[edge.limits]\nrequest_timeout_s = nan", "edge.limits.request_timeout_s"),
        ("[edge.limits]\nrequest_timeout_s = 1e18", "edge.limits.request_timeout_s"),
        ("[router.limits]\nqueue_wait_s = 0", "router.limits.queue_wait_s"),
        ("[edge", "TOML"),
    ],
)
def test_a_wrong_setting_in_the_file_is_named(tmp_path: Path, text: str, place: str) -> None:
    with pytest.raises(ConfigurationError, match=place):
        load(write(tmp_path, text), {})


def test_an_unknown_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SPEEDINFER_EDGE__PORT"):
        load(write(tmp_path, ""), {"SPEEDINFER_EDGE__PORT": "1"})


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.toml"):
        load(tmp_path / "nowhere.toml", {})


def test_the_admin_token_is_not_shown(tmp_path: Path) -> None:
    settings = load(write(tmp_path, "admin_token = 'hush-hush'"), {})
    assert settings.token == "hush-hush"
    assert "hush-hush" not in repr(settings)


def test_workers_stand_in_the_file(tmp_path: Path) -> None:
    text = "[[workers]]\nworker_id = 'w1'\n[workers.runtime_config]\ntransport = 'openai'\n"
    assert load(write(tmp_path, text), {}).workers == [{"worker_id": "w1", "runtime_config": {"transport": "openai"}}]
