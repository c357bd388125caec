"""The registry in PostgreSQL, which any number of routers share. Only `store/open.py` imports it.

Two connections: one for statements, one that only listens. Invariants: a change and its version are one statement, and versions
are committed in their order (see the migration); whatever fails is a StoreError, after which both connections are made anew.
Notifications only hurry what a look every second finds in any case.
"""

import asyncio
import hashlib
import json
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from services.common.errors import ConfigurationError
from services.common.postgresql_schema import Owner, migrate
from services.common.postgresql_url import place, said
from services.common.tasks import TaskSet
from services.router.store.port import Look, Member, Picture, Record, StoreError, Verdict
from services.router.store.postgresql_connection import CONNECT_TIMEOUT_S, OPTIONS, SETTING, Connection, check, connect

FOLDER = Path(__file__).parent / "migrations"
# A server that was stopped acknowledges packets and answers nothing.
ANSWER_WITHIN_S = 5.0
# PostgreSQL takes payloads below 8,000 bytes.
MAX_PAYLOAD_BYTES = 7_000
# What was heard and not yet looked at; more is forgotten, and found by looking.
MAX_HEARD = 20_000
_STIR = "look"
_Answer = list[tuple[Any, ...]] | Exception

_NEXT = "WITH next AS (UPDATE registry_state SET version = version + 1 RETURNING version)"
_TOLD = "(SELECT pg_notify(%(channel)s, 'look'))::text"
_COLUMNS = "w.document, w.registered_at_ms, w.draining, w.version"
_PUT = f"""{_NEXT}
INSERT INTO registry_worker AS w (worker_id, version, document, registered_at_ms, draining)
SELECT %(worker_id)s, version, %(document)s, %(now_ms)s, false FROM next
ON CONFLICT (worker_id) DO UPDATE SET version = excluded.version, document = excluded.document, draining = false
RETURNING {_COLUMNS}, {_TOLD}"""  # noqa: S608 - our own words
_DRAIN = f"""{_NEXT}
UPDATE registry_worker w SET draining = true, version = next.version FROM next WHERE worker_id = %(worker_id)s
RETURNING {_COLUMNS}, {_TOLD}"""  # noqa: S608 - our own words
_REMOVE = f"""{_NEXT}
DELETE FROM registry_worker w USING next WHERE worker_id = %(worker_id)s RETURNING {_COLUMNS}, {_TOLD}"""  # noqa: S608 - our own words
# One statement, so one moment. The state's row is always there.
_LOAD = """SELECT s.version, w.worker_id, CASE WHEN w.version > %(since)s THEN w.document END, w.registered_at_ms, w.draining,
w.version FROM registry_state s LEFT JOIN registry_worker w ON true"""
_HERE = """INSERT INTO registry_router (router_id, lease_until, version, agreed, leaving, excess, draining)
VALUES (%(router_id)s, clock_timestamp() + make_interval(secs => %(lease_s)s), %(version)s, %(agreed)s, %(leaving)s, %(excess)s,
%(draining)s)
ON CONFLICT (router_id) DO UPDATE SET lease_until = excluded.lease_until, version = excluded.version,
agreed = excluded.agreed, leaving = excluded.leaving, excess = excluded.excess, draining = excluded.draining"""
_LOOK = """SELECT s.version, r.router_id, r.version, r.agreed, r.leaving, r.excess, r.draining
FROM registry_state s LEFT JOIN registry_router r ON r.lease_until > clock_timestamp()"""
# Those whose lease ended are not looked at; they are only cleared away.
_CLEAR = "DELETE FROM registry_router WHERE lease_until < clock_timestamp() - interval '1 hour'"


class PostgresqlStore:
    """Implements store.port.SharedStore."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._place = place(url, SETTING)
        self.stirred = asyncio.Event()
        self._channel = ""
        self._connection: Connection | None = None
        # What is being asked on it.
        self._asking: asyncio.Task[_Answer] | None = None
        self._heard: deque[Verdict] = deque(maxlen=MAX_HEARD)
        self._router_id = ""
        # One statement at a time, and none while the connections are made anew.
        self._turn = asyncio.Lock()
        self._listening: asyncio.Task[None] | None = None
        # What nobody waits for any longer: connections that do not answer, in their last seconds.
        self._tasks = TaskSet()

    @property
    def is_reachable(self) -> bool:
        """See the port."""
        return self._connection is not None

    async def open(self) -> None:
        """See the port."""
        await asyncio.to_thread(self._migrate)
        try:
            await self.connect()
        except StoreError as error:
            raise ConfigurationError(f"{SETTING}: {error}") from None

    async def connect(self) -> None:
        """See the port."""
        async with self._turn:
            self._forget()
            ears: Connection | None = None
            try:
                async with asyncio.timeout(2 * CONNECT_TIMEOUT_S + ANSWER_WITHIN_S):
                    ears = await connect(self._url)
                    row = await (await ears.execute("SELECT current_schema()")).fetchone()
                    # Channels are the database's, registries a schema's.
                    schema = hashlib.sha256(str(row[0] if row else "").encode()).hexdigest()[:16]
                    self._channel = f"speedinfer_registry_{schema}"
                    await ears.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
                    self._connection = await connect(self._url)
                    await self._connection.execute(_CLEAR)
            except BaseException as error:
                self._forget()
                if ears is not None:
                    await ears.close()
                if isinstance(error, psycopg.Error | TimeoutError | OSError):
                    raise self._failed(error) from None
                raise
            self._listening = self._tasks.spawn(self._listen(ears), "listen-registry")

    async def load(self, since: int = -1) -> Picture:
        """See the port."""
        rows = await self._run(_LOAD, {"since": since})
        changed = [_record(row[2:], row[1]) for row in rows if row[2] is not None]
        return Picture(rows[0][0], frozenset(row[1] for row in rows if row[1] is not None), changed)

    async def put(self, record: Record) -> Record:
        """See the port."""
        # Escapes and no letters beyond ASCII: PostgreSQL stores neither U+0000 nor half a surrogate pair.
        values = {
            "worker_id": record.worker_id,
            "document": json.dumps(dict(record.document)),
            "now_ms": int(record.registered_at_s * 1000),
        }
        return _record((await self._run(_PUT, values))[0])

    async def drain(self, worker_id: str) -> Record | None:
        """See the port."""
        rows = await self._run(_DRAIN, {"worker_id": _storable(worker_id)})
        return _record(rows[0]) if rows else None

    async def remove(self, worker_id: str) -> bool:
        """See the port."""
        return bool(await self._run(_REMOVE, {"worker_id": _storable(worker_id)}))

    async def look(self, me: Member, lease_s: float) -> Look:
        """See the port."""
        self._router_id = me.router_id
        mine = {
            "router_id": me.router_id,
            "lease_s": lease_s,
            "version": me.version,
            "agreed": me.agreed,
            "leaving": me.leaving,
            "excess": json.dumps(dict(me.excess)),
            "draining": json.dumps(dict(me.draining)),
        }
        # Told before it is read: who reads what we wrote, and whose row we do not read, reads later than we.
        await self._run(_HERE, mine)
        rows = await self._run(_LOOK, {})
        members = [Member(row[1], row[2], row[3], row[4], _counts(row[5]), _counts(row[6])) for row in rows if row[1]]
        return Look(rows[0][0], members)

    async def leave(self, router_id: str) -> None:
        """See the port."""
        await self._run("DELETE FROM registry_router WHERE router_id = %(router_id)s", {"router_id": router_id})
        await self.stir()

    async def stir(self) -> None:
        """See the port."""
        await self._notify(_STIR)

    async def tell(self, router_id: str, verdicts: Sequence[Verdict]) -> None:
        """See the port."""
        entries: list[list[Any]] = []
        length = 0
        for verdict in verdicts:
            entry = [verdict.worker_id, verdict.version, verdict.word]
            length += len(json.dumps(entry)) + 2
            if length > MAX_PAYLOAD_BYTES:
                await self._notify(json.dumps([router_id, entries]))
                entries, length = [], len(json.dumps(entry)) + 2
            entries.append(entry)
        if entries:
            await self._notify(json.dumps([router_id, entries]))

    def heard(self) -> Sequence[Verdict]:
        """See the port."""
        heard = list(self._heard)
        self._heard.clear()
        return heard

    async def close(self) -> None:
        """See the port."""
        async with self._turn:
            self._forget()
        await self._tasks.join(1.0)
        await self._tasks.cancel()

    async def _notify(self, payload: str) -> None:
        await self._run("SELECT pg_notify(%(channel)s, %(payload)s)::text", {"payload": payload})

    async def _run(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        async with self._turn:
            connection = self._connection
            if connection is None:
                raise StoreError(f"the {self._place} is not connected")
            asking = self._tasks.spawn(_ask(connection, statement, values | {"channel": self._channel}), "ask-registry")
            self._asking = asking
            try:
                # Not the driver's own patience: it tries for ten seconds to take back what it asked.
                await asyncio.wait([asking], timeout=ANSWER_WITHIN_S)
            except asyncio.CancelledError:
                # Whoever asked is gone; what was asked goes on, and what came of it is found by looking.
                self.stirred.set()
                raise
            if asking.cancelled():
                # The other connection was lost meanwhile.
                answer: _Answer = ConnectionError()
            else:
                answer = asking.result() if asking.done() else TimeoutError()
            if isinstance(answer, Exception):
                self._forget()
                self.stirred.set()
                raise self._failed(answer)
            return answer

    async def _listen(self, ears: Connection) -> None:
        try:
            async for notice in ears.notifies():
                self._hear(notice.payload)
                self.stirred.set()
        except psycopg.Error:
            # What it was is told by whoever asks next.
            self._forget()
            self.stirred.set()
        finally:
            await ears.close()

    def _hear(self, payload: str) -> None:
        if payload == _STIR:
            return
        # Anybody who may use the database may notify; what is no word of ours is none. JSON knows infinity, and any depth.
        with suppress(ValueError, TypeError, OverflowError, RecursionError):
            router_id, verdicts = json.loads(payload)
            if router_id != self._router_id:
                self._heard.extend(Verdict(str(each), int(version), str(word)) for each, version, word in verdicts)

    def _forget(self) -> None:
        """Use these connections no more. A socket is closed only when nobody waits on it: its number is soon another's."""
        connection, asking, listening = self._connection, self._asking, self._listening
        self._connection = self._asking = self._listening = None
        if connection is not None:
            if asking is not None and not asking.done():
                asking.add_done_callback(lambda _: connection.pgconn.finish())
                asking.cancel()
            else:
                connection.pgconn.finish()
        if listening is not None and listening is not asyncio.current_task():
            listening.cancel()

    def _failed(self, error: BaseException) -> StoreError:
        if isinstance(error, psycopg.Error):
            why = said(error)
        else:
            why = "it did not answer" if isinstance(error, TimeoutError) else "the connection was lost"
        return StoreError(f"the {self._place} cannot be used: {why}")

    def _migrate(self) -> None:
        try:
            with closing(psycopg.connect(self._url, **OPTIONS)) as connection:
                check(connection, self._place)
                migrate(connection, Owner("the routers' registry", FOLDER), time.time_ns() // 1_000_000, self._place)
        except psycopg.Error as error:
            raise ConfigurationError(f"{SETTING}: the {self._place} cannot be used: {said(error)}") from None


async def _ask(connection: Connection, statement: str, values: dict[str, Any]) -> _Answer:
    """The rows, or what went wrong; a task of its own, so that whoever asked may go."""
    try:
        cursor = await connection.execute(statement, values)
        return await cursor.fetchall() if cursor.description else []
    except (psycopg.Error, OSError) as error:
        return error


def _record(row: Sequence[Any], worker_id: str = "") -> Record:
    document, registered_at_ms, draining, version = row[:4]
    # What somebody else wrote there is a registration without anything: whoever reads it says so, and follows on.
    registration = _object(document) or {"worker_id": worker_id}
    return Record(registration, registered_at_ms / 1000, draining, version)


def _counts(text: str) -> dict[str, int]:
    """A router's counts by worker; what is none is left out."""
    return {key: value for key, value in _object(text).items() if type(value) is int}


def _object(text: str) -> dict[str, Any]:
    """Empty if it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _storable(worker_id: str) -> str:
    """No worker has an id with U+0000, which PostgreSQL cannot compare with."""
    return worker_id.replace("\0", "\ufffd")
