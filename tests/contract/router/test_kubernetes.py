"""Workers that are pods of a Kubernetes service: they come when they are ready and go when they terminate, whatever happens to
the API server and the way to it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from speedinfer.router.v1 import inference_pb2
from speedinfer.router.v1.fleet_pb2 import WORKER_STATUS_HEALTHY

from services.common.errors import ConfigurationError
from services.router.discovery import cluster, endpoint_slices, kubernetes, sources
from services.router.discovery.cluster import in_cluster_url
from tests.contract.router.gateway import MODEL, Gateway, item, running
from tests.fakes import scripts
from tests.fakes.kubernetes_api import NAMESPACE, SERVICE, KubernetesApi, endpoint, endpoint_slice
from tests.fakes.worker import FakeWorker

OFTEN = {"discover_interval_s": 0.02}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[KubernetesApi]:
    async with KubernetesApi(tmp_path) as fake:
        yield fake


def document(api: KubernetesApi, **changes: Any) -> dict[str, Any]:
    """`[[discover]]` as an operator writes it, for a router outside of the cluster."""
    where = {"service": SERVICE, "port": "http", "folder": str(api.folder), "api_server": api.url}
    return {
        "worker_id": "found", "runtime": "openai-compatible", "runtime_endpoint": "http://vllm.models/v1",
        "supported_models": [MODEL], "runtime_config": {"transport": "openai", "check": "metadata"},
        "kubernetes": {**where, **changes.pop("kubernetes", {})}, **changes,
    }  # fmt: skip


@asynccontextmanager
async def looking(tmp_path: Path, api: KubernetesApi, **settings: Any) -> AsyncIterator[Gateway]:
    async with running(tmp_path / "data", discover=[document(api)], **OFTEN, **settings) as gateway:
        yield gateway


def ids(gateway: Gateway) -> list[str]:
    return [worker.worker_id for worker in gateway.router.registry]


async def until_ids(gateway: Gateway, *wanted: str) -> None:
    """Wait until these are the workers."""
    async with asyncio.timeout(10):
        while ids(gateway) != list(wanted):
            await asyncio.sleep(0.01)


async def test_pods_come_when_they_are_ready_and_go_with_the_slices(
    tmp_path: Path, api: KubernetesApi, worker: FakeWorker
) -> None:
    port = worker.port
    api.put(
        endpoint_slice("s1", endpoint("127.0.0.1", "a"), port=port),
        endpoint_slice("s2", endpoint("127.0.0.2", "b"), endpoint("127.0.0.9", "starting", ready=False), port=port),
        endpoint_slice("s3", endpoint("::1", "c"), port=port, family="IPv6"),
        endpoint_slice("else", endpoint("127.0.0.8", "else"), service="another"),
    )
    async with looking(tmp_path, api) as gateway:
        # In two pages.
        assert [kind for kind, _ in api.requests][:2] == ["list", "list"]
        assert ids(gateway) == ["found-a", "found-b", "found-c"]
        await gateway.until(WORKER_STATUS_HEALTHY, "found-a")
        assert (await gateway.generate()).counts == (12, 5)
        assert gateway.worker("found-c").registration.endpoint == f"http://[::1]:{port}/v1"

        api.put(
            endpoint_slice("s2", endpoint("127.0.0.2", "b", ready=False), endpoint("127.0.0.9", "starting"), port=port)
        )
        await until_ids(gateway, "found-a", "found-b", "found-c", "found-starting")
        api.delete("s3")
        await until_ids(gateway, "found-a", "found-b", "found-starting")
        api.put(endpoint_slice("s4", endpoint("127.0.0.4", "d"), port=port))
        await until_ids(gateway, "found-a", "found-b", "found-d", "found-starting")
        api.put(endpoint_slice("s1"), endpoint_slice("s2"), endpoint_slice("s4"))
        await until_ids(gateway)
    assert not (tmp_path / "data" / "router" / "registry.json").exists()


async def test_a_terminating_pod_gets_nothing_new_and_ends_what_runs(
    tmp_path: Path, api: KubernetesApi, worker: FakeWorker, second: FakeWorker
) -> None:
    go_on = asyncio.Event()
    rest = (scripts.delta(MODEL, finish_reason="stop"), scripts.frame(MODEL, choices=[], usage=scripts.usage(12, 1)))
    worker.scripts[MODEL] = scripts.stream(scripts.delta(MODEL, content="Hello"), scripts.WaitFor(go_on), *rest)
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a"), port=worker.port))
    async with looking(tmp_path, api) as gateway:
        await gateway.until(WORKER_STATUS_HEALTHY, "found-a")
        stream = aiter(gateway.inference.Generate(inference_pb2.GenerateRequest(item=item())))
        await anext(stream)
        ending = endpoint("127.0.0.1", "a", ready=False, terminating=True)
        api.put(
            endpoint_slice("s1", ending, port=worker.port),
            endpoint_slice("s2", endpoint("127.0.0.1", "b"), port=second.port),
        )
        await until_ids(gateway, "found-b")
        await gateway.until(WORKER_STATUS_HEALTHY, "found-b")
        assert (await gateway.generate()).counts == (12, 5)
        assert len(second.requests) == 1
        go_on.set()
        assert [answer.frame async for answer in stream][-1].HasField("end")


@pytest.mark.parametrize("how", ["end_watches", "cut_watches"])
async def test_a_watch_that_ended_is_resumed_where_it_was(
    tmp_path: Path, api: KubernetesApi, worker: FakeWorker, how: str
) -> None:
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a"), port=worker.port))
    async with looking(tmp_path, api) as gateway:
        await api.asked("watch")
        before = gateway.worker("found-a")
        getattr(api, how)()
        # Between two watches.
        api.put(endpoint_slice("s2", endpoint("127.0.0.2", "b")))
        await until_ids(gateway, "found-a", "found-b")
        await api.asked("watch", 2)
        assert [kind for kind, _ in api.requests] == ["list", "watch", "watch"]
        assert gateway.worker("found-a") is before


async def test_a_bookmark_is_where_the_next_watch_begins(tmp_path: Path, api: KubernetesApi) -> None:
    async with looking(tmp_path, api):
        await api.asked("watch")
        api.bookmark()
        api.end_watches()
        await api.asked("watch", 2)
        assert api.requests == [("list", ""), ("watch", "100"), ("watch", "101")]


@pytest.mark.parametrize("how", ["event", "status"])
async def test_what_the_api_server_does_not_remember_is_listed_anew(
    tmp_path: Path, api: KubernetesApi, how: str
) -> None:
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a")), endpoint_slice("s2", endpoint("127.0.0.2", "b")))
    async with looking(tmp_path, api) as gateway:
        await api.asked("watch")
        before = gateway.worker("found-a")
        api.end_watches()
        if how == "status":
            api.failures = [410]
        api.delete("s2")
        if how == "event":
            # Nobody will tell of it.
            api.forget()
        await until_ids(gateway, "found-a")
        assert [kind for kind, _ in api.requests].count("list") == 2
        assert gateway.worker("found-a") is before


@pytest.mark.parametrize(
    "event",
    [
        b"nonsense\n",
        b'{"type": "MODIFIED", "object": {"metadata": {"resourceVersion": "200"}}}\n',
        b'{"type": "NEW", "object": {"metadata": {"name": "s", "resourceVersion": "200"}}}\n',
        b'{"type": "BOOKMARK", "object": {"metadata": {}}}\n',
        b'{"type": "ERROR", "object": {"code": 500}}\n',
        b" " * 300_000,
    ],
)
async def test_what_cannot_be_read_in_a_watch_is_listed_anew(
    tmp_path: Path, api: KubernetesApi, event: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_slices, "MAX_EVENT_BYTES", 200_000)
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a")))
    async with looking(tmp_path, api) as gateway:
        await api.asked("watch")
        before = gateway.worker("found-a")
        api.say(event)
        await api.asked("list", 2)
        await api.asked("watch", 2)
        assert gateway.worker("found-a") is before


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 307])
async def test_an_api_server_that_refuses_changes_nothing(tmp_path: Path, api: KubernetesApi, status: int) -> None:
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a")))
    async with looking(tmp_path, api) as gateway:
        await api.asked("watch")
        before = gateway.worker("found-a")
        api.failures = [status] * 3
        api.end_watches()
        await api.asked("watch", 4)
        assert gateway.worker("found-a") is before
        api.put(endpoint_slice("s2", endpoint("127.0.0.2", "b")))
        await until_ids(gateway, "found-a", "found-b")
        # It led elsewhere where it could; nobody brought a token there.
        assert "elsewhere" not in [kind for kind, _ in api.requests]


async def test_an_api_server_that_is_away_changes_nothing_and_is_found_again(
    tmp_path: Path, api: KubernetesApi
) -> None:
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a")))
    async with looking(tmp_path, api) as gateway:
        await api.asked("watch")
        before = gateway.worker("found-a")
        await api.stop()
        api.put(endpoint_slice("s2", endpoint("127.0.0.2", "b")))
        assert ids(gateway) == ["found-a"]
        await api.start()
        await until_ids(gateway, "found-a", "found-b")
        assert gateway.worker("found-a") is before


async def test_one_that_is_away_at_the_start_is_found_later(tmp_path: Path, api: KubernetesApi) -> None:
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a")))
    await api.stop()
    async with looking(tmp_path, api) as gateway:
        assert ids(gateway) == []
        await api.start()
        await until_ids(gateway, "found-a")


async def test_a_watch_on_which_nothing_comes_any_more_is_given_up(
    tmp_path: Path, api: KubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server does not end it, as if the way to it were cut.
    monkeypatch.setattr(endpoint_slices, "WATCH_S", 0)
    monkeypatch.setattr(endpoint_slices, "WATCH_SLACK_S", 0.2)
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a")))
    async with looking(tmp_path, api) as gateway:
        await api.asked("watch", 3)
        assert [kind for kind, _ in api.requests].count("list") == 1
        assert ids(gateway) == ["found-a"]


async def test_a_token_that_rotates_is_read_anew_and_stands_in_no_log(
    tmp_path: Path, api: KubernetesApi, capfd: pytest.CaptureFixture[str]
) -> None:
    async with looking(tmp_path, api) as gateway:
        await api.asked("watch")
        api.token = "token-2"
        api.end_watches()
        await api.asked("watch", 3)
        api.rotate("token-2")
        api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a")))
        await until_ids(gateway, "found-a")
        (api.folder / "token").write_text("two\nlines of token-2")
        api.end_watches()
        said = ""
        async with asyncio.timeout(10):
            while "holds no token" not in said:
                await asyncio.sleep(0.01)
                said += "".join(capfd.readouterr())
    said += "".join(capfd.readouterr())
    assert "does not know the service account's token (401)" in said
    assert "token-1" not in said
    assert "token-2" not in said


async def test_a_server_of_another_ca_gets_no_token(tmp_path: Path, api: KubernetesApi) -> None:
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a")))
    real = (api.folder / "ca.crt").read_bytes()
    (tmp_path / "other").mkdir()
    (api.folder / "ca.crt").write_bytes((KubernetesApi(tmp_path / "other").folder / "ca.crt").read_bytes())
    async with looking(tmp_path, api) as gateway:
        assert ids(gateway) == []
        assert api.requests == []
        # The CA rotates, too.
        (api.folder / "ca.crt").write_text("nonsense")
        (api.folder / "ca.crt").write_bytes(real)
        await until_ids(gateway, "found-a")


@pytest.mark.parametrize(
    ("module", "bound", "value", "waits_for"),
    [
        (endpoint_slices, "MAX_SLICES", 2, "list"),
        (endpoint_slices, "MAX_PAGE_BYTES", 1500, "list"),
        (kubernetes, "MAX_PODS", 2, "watch"),
    ],
)
async def test_more_than_there_may_be_changes_nothing(
    tmp_path: Path,
    api: KubernetesApi,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    bound: str,
    value: int,
    waits_for: str,
) -> None:
    api.page = 10
    api.put(endpoint_slice("s1", endpoint("127.0.0.1", "a")), endpoint_slice("s2", endpoint("127.0.0.2", "b")))
    async with looking(tmp_path, api) as gateway:
        await api.asked("watch")
        monkeypatch.setattr(module, bound, value)
        more = [
            endpoint_slice(f"more-{n}", endpoint(f"127.0.1.{n}", f"p{n}"), endpoint(f"127.0.2.{n}")) for n in range(3)
        ]
        api.end_watches()
        api.watches.clear()
        api.put(*more)
        api.forget()
        # What is too much is listed again and again; too many pods of what may be listed are watched.
        await api.asked(waits_for, 3)
        assert ids(gateway) == ["found-a", "found-b"]


async def test_addresses_and_operators_are_as_for_names(tmp_path: Path, api: KubernetesApi, worker: FakeWorker) -> None:
    api.put(endpoint_slice("s1", endpoint("169.254.169.254", "bad"), endpoint("127.0.0.1", "a"), port=worker.port))
    async with looking(tmp_path, api) as gateway:
        assert ids(gateway) == ["found-a"]
        with pytest.raises(grpc.aio.AioRpcError, match="found by the Kubernetes service models/vllm"):
            await gateway.remove("found-a")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kubernetes": {"service": "Not_One"}}, "kubernetes.service: it has characters"),
        ({"kubernetes": {"port": 0}}, "kubernetes.port"),
        ({"kubernetes": {"port": True}}, "kubernetes.port"),
        ({"kubernetes": {"colour": "red"}}, "kubernetes.colour is not known"),
        ({"kubernetes": {"namespace": "a/b"}}, "kubernetes.namespace: it has characters"),
        ({"kubernetes": {"api_server": "http://127.0.0.1:80"}}, "kubernetes.api_server: it must be https://"),
        ({"kubernetes": {"api_server": "https://127.0.0.1:80/x"}}, "kubernetes.api_server: it must be https://"),
        ({"kubernetes": {"api_server": "https://me:secret@127.0.0.1"}}, "kubernetes.api_server: it must be https://"),
        ({"kubernetes": {"api_server": None}}, "KUBERNETES_SERVICE_HOST is not set"),
        ({"kubernetes": {"folder": "/nowhere"}}, "kubernetes.namespace is missing, and /nowhere/namespace cannot be"),
        ({"runtime_endpoint": "http://vllm.models:8000/v1"}, "runtime_endpoint: it must have no port"),
        ({"runtime_endpoint": "https://vllm.models/v1"}, "runtime_endpoint: it must begin with http://"),
    ],
)
async def test_what_cannot_be_looked_for_stops_the_start(
    tmp_path: Path, api: KubernetesApi, changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigurationError, match=rf"discover\[0\]: .*{said}") as error:
        async with running(tmp_path / "data", discover=[document(api, **changes)]):
            raise AssertionError("it started")
    assert "secret" not in str(error.value)


def test_in_a_pod_kubernetes_says_where_the_api_server_is() -> None:
    assert (
        in_cluster_url({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"})
        == "https://10.0.0.1:6443"
    )
    assert (
        in_cluster_url({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"})
        == "https://[fd00::1]:443"
    )
    assert in_cluster_url({}) == ""


async def test_the_namespace_is_the_pods_own_or_the_named_one(api: KubernetesApi) -> None:
    titles = [
        source.title
        for _, source in sources.read_all([document(api), document(api, kubernetes={"namespace": "other"})], 1.0)
    ]
    assert titles == [f"the Kubernetes service {NAMESPACE}/{SERVICE}", f"the Kubernetes service other/{SERVICE}"]


async def test_a_clusters_ca_need_not_be_strict(api: KubernetesApi) -> None:
    context = cluster.Cluster(api.url, api.folder)._trust()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
