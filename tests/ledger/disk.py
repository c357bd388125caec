"""A disk that fails, under SQLite: writes that find no room, a file system that became read-only, fsync that fails.

It stands between SQLite and its own way to the operating system (SQLite's VFS), in this process, without a compiler. It also
keeps what a loss of power would leave: of what was written only what a later fsync confirmed; and what a failed fsync was to
confirm is lost for good unless it is written again, as Linux has it.
"""

import _sqlite3
import ctypes
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FULL, WRITE_FAILED, SYNC_FAILED = 13, 778, 1034
OPEN_READONLY, OPEN_READWRITE, OPEN_CREATE = 1, 2, 4
_NAME = b"speedinfer-failing-disk"

_open_t = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *([ctypes.c_void_p] * 2), ctypes.c_int, ctypes.c_void_p)
_delete_t = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
_write_t = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_truncate_t = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_sync_t = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)

_KEPT: list[Any] = []


class _Methods(ctypes.Structure):
    """sqlite3_io_methods, as far as it is touched; the rest is copied."""

    _fields_ = (
        ("version", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in ("close", "read", "write", "truncate", "sync")),
        ("rest", ctypes.c_void_p * 13),
    )


class _Vfs(ctypes.Structure):
    """sqlite3_vfs."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("version", "file_bytes", "max_path")),
        *((name, ctypes.c_void_p) for name in ("next", "name", "data", "open", "delete")),
        ("rest", ctypes.c_void_p * 14),
    )


class Disk:
    """See above. `fails` is "", "full", "read_only" or "fsync"."""

    def __init__(self) -> None:
        self.fails = ""
        # How often it failed somebody.
        self.failures = 0
        # Confirmed, by the file's name.
        self.syncs: Counter[str] = Counter()
        self._names: dict[int, str] = {}
        self._durable: dict[str, bytearray] = {}
        # Written and not confirmed: an offset and bytes, or a length to cut to.
        self._pending: dict[str, list[tuple[int, bytes | None]]] = {}
        # For the whole run: a connection that a failed test left open would else call what is no more.
        self._kept = _KEPT
        self._methods: dict[int, _Methods] = {}
        self._kept.append(self._methods)

    @contextmanager
    def under_sqlite(self) -> Iterator[None]:
        """Every database that is opened meanwhile lies on this disk."""
        sqlite = ctypes.CDLL(_sqlite3.__file__)
        sqlite.sqlite3_vfs_find.restype = ctypes.c_void_p
        for name in ("sqlite3_vfs_register", "sqlite3_vfs_unregister"):
            getattr(sqlite, name).argtypes = [ctypes.c_void_p, ctypes.c_int][: 1 + name.endswith("_register")]
        usual_at = sqlite.sqlite3_vfs_find(None)
        usual = _Vfs.from_address(usual_at)
        ours = _Vfs.from_buffer_copy(usual)
        ours.name, ours.next = ctypes.cast(ctypes.c_char_p(_NAME), ctypes.c_void_p).value, None
        ours.open = self._keep(_open_t, self._opener(_open_t(usual.open)))
        ours.delete = self._keep(_delete_t, self._deleter(_delete_t(usual.delete)))
        self._kept.append(ours)
        sqlite.sqlite3_vfs_register(ctypes.addressof(ours), 1)
        try:
            yield
        finally:
            sqlite.sqlite3_vfs_register(usual_at, 1)
            sqlite.sqlite3_vfs_unregister(ctypes.addressof(ours))

    def after_a_loss_of_power(self, folder: Path) -> None:
        """What the disk would hold, as files of the same names in a folder."""
        for name, image in self._durable.items():
            (folder / Path(name).name).write_bytes(image)

    def _fail(self, code: int) -> int:
        self.failures += 1
        return code

    def _keep(self, kind: Any, function: Any) -> int:
        """The address of a function, kept alive."""
        made = kind(function)
        self._kept.append(made)
        return int(ctypes.cast(made, ctypes.c_void_p).value or 0)

    def _opener(self, usual: Any) -> Any:
        def open_file(vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:
            if self.fails == "read_only" and flags & OPEN_READWRITE:
                flags = flags & ~(OPEN_READWRITE | OPEN_CREATE) | OPEN_READONLY
            code = int(usual(vfs, name, file, flags, out))
            methods = ctypes.c_void_p.from_address(file)
            if code == 0 and name and methods.value:
                self._names[file] = ctypes.string_at(name).decode()
                methods.value = ctypes.addressof(self._methods_like(methods.value))
            return code

        return open_file

    def _deleter(self, usual: Any) -> Any:
        def delete(vfs: int, name: bytes, sync: int) -> int:
            code = int(usual(vfs, name, sync))
            if code == 0:
                self._durable.pop(name.decode(), None)
                self._pending.pop(name.decode(), None)
            return code

        return delete

    def _methods_like(self, address: int) -> _Methods:
        """The usual methods of a file, with ours where it is written."""
        if address in self._methods:
            return self._methods[address]
        usual = _Methods.from_address(address)
        ours = _Methods.from_buffer_copy(usual)
        write, cut, sync = _write_t(usual.write), _truncate_t(usual.truncate), _sync_t(usual.sync)

        def write_file(file: int, data: int, size: int, offset: int) -> int:
            if self.fails in ("full", "read_only"):
                return self._fail(FULL if self.fails == "full" else WRITE_FAILED)
            self._pending.setdefault(self._names[file], []).append((offset, ctypes.string_at(data, size)))
            return int(write(file, data, size, offset))

        def cut_file(file: int, size: int) -> int:
            if self.fails == "read_only":
                return self._fail(WRITE_FAILED)
            self._pending.setdefault(self._names[file], []).append((size, None))
            return int(cut(file, size))

        def sync_file(file: int, flags: int) -> int:
            pending = self._pending.pop(self._names[file], [])
            if self.fails == "fsync":
                return self._fail(SYNC_FAILED)
            code = int(sync(file, flags))
            if code == 0:
                self.syncs[Path(self._names[file]).name] += 1
                self._confirm(self._names[file], pending)
            return code

        ours.write = self._keep(_write_t, write_file)
        ours.truncate = self._keep(_truncate_t, cut_file)
        ours.sync = self._keep(_sync_t, sync_file)
        self._methods[address] = ours
        # What is opened on top of ours is ours already.
        self._methods[ctypes.addressof(ours)] = ours
        return ours

    def _confirm(self, name: str, pending: list[tuple[int, bytes | None]]) -> None:
        image = self._durable.setdefault(name, bytearray())
        for offset, data in pending:
            end = offset + len(data or b"")
            if len(image) < end:
                image.extend(bytes(end - len(image)))
            if data is None:
                del image[offset:]
            else:
                image[offset:end] = data
