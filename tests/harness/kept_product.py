"""A product for tests by the hundred: what each asks of billing and the router goes over connections that are kept.

The command says the same (tests/blackbox/test_command.py), and takes longer for it than the request that a test is about: it
reads all settings and makes a connection each time.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from speedinfer.billing.v1 import account_pb2, account_pb2_grpc, key_pb2, key_pb2_grpc
from speedinfer.router.v1 import registry_pb2, registry_pb2_grpc

from services.cli import shape
from services.cli.workers import CHECK_TIMEOUT_S
from services.common import registration_form
from services.common.apikey import make_key
from services.common.ids import uuid7
from services.common.money import parse_usd, to_money
from services.common.rpc import CHANNEL_OPTIONS
from tests.harness import canaries
from tests.harness.product import Product

ANSWER_WITHIN_S = 30.0


class KeptProduct(Product):
    """See above; its services are not to be killed, since nothing is asked a second time."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, settings)
        self._lines: dict[str, grpc.Channel] = {}

    def account(self, credit: str = "10") -> str:
        """See Product."""
        item = account_pb2.CreateAccountItem(operation_id=uuid7(), name="test", credit=to_money(parse_usd(credit)))
        stub = account_pb2_grpc.AccountServiceStub(self._line("billing"))
        request = account_pb2.CreateAccountsRequest(items=[item])
        [result] = stub.CreateAccounts(request, metadata=self._token, timeout=ANSWER_WITHIN_S).results
        assert result.status == account_pb2.MUTATION_STATUS_DONE, result
        account_id: str = result.account.account_id
        return account_id

    def key(self, account_id: str, *options: str) -> str:
        """See Product. With options it is made by the command, which knows them."""
        if options:
            return super().key(account_id, *options)
        text, presented = make_key()
        item = key_pb2.CreateKeyItem(
            operation_id=uuid7(), account_id=account_id, key_id=presented.key_id, key_sha256=presented.sha256
        )
        stub = key_pb2_grpc.KeyServiceStub(self._line("billing"))
        request = key_pb2.CreateKeysRequest(items=[item])
        [result] = stub.CreateKeys(request, metadata=self._token, timeout=ANSWER_WITHIN_S).results
        assert result.status == account_pb2.MUTATION_STATUS_DONE, result
        canaries.KNOWN.add_key(text)
        return text

    def balance(self, account_id: str) -> dict[str, Any]:
        """See Product."""
        stub = account_pb2_grpc.AccountServiceStub(self._line("billing"))
        request = account_pb2.GetAccountRequest(account_id=account_id)
        return shape.account(stub.GetAccount(request, metadata=self._token, timeout=ANSWER_WITHIN_S).account)

    def register(self, registration: Mapping[str, Any]) -> dict[str, Any]:
        """See Product."""
        self.know_secrets(registration)
        # As JSON has it.
        request = registration_form.read(json.loads(json.dumps(registration)))
        stub = registry_pb2_grpc.WorkerRegistryServiceStub(self._line("router"))
        return shape.worker_detail(stub.RegisterWorker(request, metadata=self._token, timeout=CHECK_TIMEOUT_S).worker)

    def worker(self, worker_id: str) -> dict[str, Any]:
        """See Product."""
        stub = registry_pb2_grpc.WorkerRegistryServiceStub(self._line("router"))
        request = registry_pb2.GetWorkerRequest(worker_id=worker_id)
        return shape.worker_detail(stub.GetWorker(request, metadata=self._token, timeout=ANSWER_WITHIN_S).worker)

    @contextmanager
    def billing(self) -> Iterator[grpc.Channel]:
        """See Product."""
        yield self._line("billing")

    def close(self) -> None:
        """See Product."""
        while self._lines:
            self._lines.popitem()[1].close()
        super().close()

    @property
    def _token(self) -> tuple[tuple[str, str]]:
        return (("authorization", f"Bearer {self.admin_token}"),)

    def _line(self, name: str) -> grpc.Channel:
        if name not in self._lines:
            self._lines[name] = grpc.insecure_channel(self.address(name), options=CHANNEL_OPTIONS)
        return self._lines[name]
