"""The command's surface: where options may stand, exit codes, what goes to which stream, registration files."""

import json
import socket
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from services.cli import workers
from services.cli.failure import CommandError
from services.cli.main import app
from services.common import handover

# Nobody listens on port 1 of loopback, and connecting to it fails at once.
NOBODY = {"SPEEDINFER_BILLING__LISTEN": "127.0.0.1:1", "SPEEDINFER_ROUTER__LISTEN": "127.0.0.1:1"}

COMMANDS = [
    "up",
    "edge",
    "router",
    "billing",
    *(f"workers {verb}" for verb in ("register", "list", "show", "drain", "remove", "check")),
    *(f"accounts {verb}" for verb in ("create", "credit", "adjust", "limit", "show", "list")),
    *(f"keys {verb}" for verb in ("create", "list", "revoke", "rotate")),
    "prices set",
    "prices list",
    "prices export",
    "prices import",
    "usage",
    "ledger list",
    "ledger export",
    *(f"ledger {verb}" for verb in ("verify", "seal", "seals export", "seals key", "backup", "restore")),
    *(f"certs {verb}" for verb in ("make", "renew", "show")),
    "sidecar",
    "doctor",
]


def run(folder: Path, *arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=stdin, env=NOBODY | {"SPEEDINFER_DATA_DIR": str(folder)})


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_takes_both_options(words: str, tmp_path: Path) -> None:
    shown = run(tmp_path, *words.split(), "--help")
    assert shown.exit_code == 0
    assert "--config" in shown.stdout
    assert "--json" in shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["accounts", "list", "--json"],
        ["accounts", "--json", "list"],
        ["--json", "accounts", "list"],
        ["workers", "list"],
        ["ledger", "verify"],
        ["ledger", "seal"],
        ["ledger", "seals", "export"],
    ],
)
def test_a_service_that_is_not_there_is_one_sentence(arguments: list[str], tmp_path: Path) -> None:
    shown = run(tmp_path, *arguments)
    service = "router" if arguments[0] == "workers" else "billing"
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert shown.stderr == f"speedinfer: {service} does not answer at 127.0.0.1:1; start it with `speedinfer up`\n"


@pytest.mark.parametrize("name", ["edge", "router", "billing"])
def test_a_second_service_by_mistake_is_told_how_to_mean_it(name: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket(socket.AF_UNIX) as offer:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        offer.bind(str(handover.place(tmp_path, name, address)))
        offer.listen()
        settings = {"SPEEDINFER_DATA_DIR": str(tmp_path), f"SPEEDINFER_{name.upper()}__LISTEN": address}
        shown = CliRunner().invoke(app, [name], env=NOBODY | settings)
    assert shown.exit_code == 1
    assert f"{address} ({name}.listen) is taken by another process" in shown.stderr
    assert f"to succeed the {name} that runs there, add --take-over" in shown.stderr


@pytest.mark.parametrize("name", ["edge", "router", "billing"])
def test_a_stranger_at_the_port_is_not_succeeded(name: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = {"SPEEDINFER_DATA_DIR": str(tmp_path), f"SPEEDINFER_{name.upper()}__LISTEN": address}
        shown = CliRunner().invoke(app, [name, "--take-over"], env=NOBODY | settings)
    assert shown.exit_code == 1
    assert f"{address} ({name}.listen) is taken by another process" in shown.stderr
    assert "--take-over" not in shown.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["accounts", "credit", "acct_1", "abc"],
        ["accounts", "credit", "acct_1", "-1"],
        ["accounts", "adjust", "acct_1", "0", "--reason", "none"],
        ["accounts", "adjust", "acct_1", "1"],
        ["accounts", "create", "acme", "--credit", "1e3"],
        ["accounts", "limit", "acct_1"],
        ["accounts", "limit", "acct_1", "--credit-limit", "-1"],
        ["accounts", "limit", "acct_1", "--remove", "rpm,speed"],
        ["keys", "create"],
        ["keys", "create", "--account", "acct_1", "--rpm", "0"],
        ["keys", "rotate", "key_1", "--grace", "soon"],
        ["prices", "set", "m", "--prompt", "0.2"],
        ["prices", "set", "m", "--prompt", "0.2", "--completion", "0.6", "--tier", "128000"],
        ["usage"],
        ["ledger", "export", "--format", "xml"],
    ],
)
def test_wrong_usage_exits_2_and_prints_no_result(arguments: list[str], tmp_path: Path) -> None:
    shown = run(tmp_path, *arguments)
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert shown.stderr


def test_a_negative_amount_is_no_option(tmp_path: Path) -> None:
    shown = run(tmp_path, "accounts", "adjust", "acct_1", "-1.50", "--reason", "typing error", "--json")
    # It was understood, and went as far as a service that is not there.
    assert shown.exit_code == 1
    assert "billing does not answer" in shown.stderr


def test_a_negative_credit_is_called_that(tmp_path: Path) -> None:
    shown = run(tmp_path, "accounts", "credit", "acct_1", "-5")
    assert shown.exit_code == 2
    assert "must be more than zero" in shown.stderr
    assert "No such option" not in shown.stderr


def test_a_key_that_would_have_ended_already_is_not_made(tmp_path: Path) -> None:
    shown = run(tmp_path, "keys", "create", "--account", "acct_1", "--expires", "2020-01-01")
    assert shown.exit_code == 2
    assert "is past" in shown.stderr


def test_it_tells_its_version(tmp_path: Path) -> None:
    shown = run(tmp_path, "--version")
    assert (shown.exit_code, shown.stdout) == (0, f"speedinfer {version('speedinfer')}\n")


def test_a_settings_file_with_an_unknown_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("[edge]\nlisten_on = '127.0.0.1:1'\n")
    shown = run(tmp_path, "accounts", "list", "--config", str(file))
    assert shown.exit_code == 1
    assert "edge.listen_on" in shown.stderr


def test_doctor_names_what_is_wrong_and_what_to_do(tmp_path: Path) -> None:
    shown = run(tmp_path, "doctor", "--json")
    assert shown.exit_code == 1
    found = {check["check"]: check for check in json.loads(shown.stdout)["checks"]}
    assert found["settings"]["ok"]
    for name in ("admin token", "database", "billing", "router"):
        assert not found[name]["ok"]
        assert found[name]["remedy"]


REGISTRATION = {
    "worker_id": "w1",
    "worker_type": "nvidia-gpu",
    "runtime": "tensorrt-llm",
    "runtime_endpoint": "http://127.0.0.1:1/v1",
    "supported_models": ["acme/model-1"],
    "runtime_config": {"transport": "openai", "connect_timeout_s": 5},
    "runtime_metadata": {"backend": "tensorrt-llm"},
}


def test_a_registration_is_read_as_it_stands() -> None:
    request = workers.parse_registration(REGISTRATION, "file")
    assert request.worker_id == "w1"
    assert request.runtime_config["transport"] == "openai"
    assert list(request.supported_models) == ["acme/model-1"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (REGISTRATION | {"modles": []}, "modles is not known"),
        (REGISTRATION | {"supported_models": "acme/model-1"}, "^file: supported_models: it must be a list of strings$"),
        (REGISTRATION | {"supported_models": ["acme/model-1", 1]}, "supported_models: it must be a list of strings"),
        (REGISTRATION | {"runtime_config": []}, "^file: runtime_config: it must be an object$"),
        (REGISTRATION | {"runtime_metadata": "free"}, "runtime_metadata: it must be an object"),
        (REGISTRATION | {"worker_id": 7}, "worker_id: it must be a string"),
        (REGISTRATION | {"worker_id": None}, "worker_id is missing"),
        ({}, "worker_id is missing\nfile: runtime is missing\nfile: runtime_endpoint is missing"),
        (REGISTRATION | {"runtime_metadata": {"half": "\ud800"}}, "is not valid Unicode"),
        ([REGISTRATION], "is a JSON object"),
    ],
)
def test_what_is_wrong_with_a_registration_is_named(value: object, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        workers.parse_registration(value, "file")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"runtime_metadata": {"load": NaN}}', "NaN is no JSON number"),
        ('{"runtime_metadata": {"load": -Infinity}}', "-Infinity is no JSON number"),
        ('{"runtime_metadata": {"load": 1e999}}', "1e999 is too large a number"),
        ('{"runtime_metadata": {"load": 1' + "0" * 400 + "}}", "is too large a number"),
        ('{"worker_id": "a", "runtime_config": {"weight": 1, "weight": 2}}', "the key 'weight' stands more than once"),
        ('{"worker_id": "a", "worker_id": "a"}', "the key 'worker_id' stands more than once"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_python_takes_for_json_and_nobody_else_is_refused(text: str, said: str, tmp_path: Path) -> None:
    for verb in ("register", "check"):
        shown = run(tmp_path, "workers", verb, "-", stdin=text)
        assert shown.exit_code == 1
        assert "standard input is not JSON" in shown.stderr
        assert said in shown.stderr


def test_a_registration_that_is_no_json_is_refused_before_any_call(tmp_path: Path) -> None:
    shown = run(tmp_path, "workers", "register", "-", stdin="{")
    assert shown.exit_code == 1
    assert "standard input is not JSON" in shown.stderr
    missing = run(tmp_path, "workers", "register", str(tmp_path / "none.json"))
    assert missing.exit_code == 1
    assert "cannot be read" in missing.stderr


@pytest.mark.parametrize("name", ["router", "billing"])
def test_at_a_unix_socket_nobody_is_succeeded(name: str, tmp_path: Path) -> None:
    settings = {f"SPEEDINFER_{name.upper()}__LISTEN": f"unix:{tmp_path}/x.sock", "SPEEDINFER_DATA_DIR": str(tmp_path)}
    shown = CliRunner().invoke(app, [name, "--take-over"], env=NOBODY | settings)
    assert shown.exit_code == 1
    assert f"{name}.listen is a Unix socket, where a service cannot be succeeded" in shown.stderr
