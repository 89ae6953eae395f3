"""FOLDER: where a study keeps what it makes; one process at a time, each file whole or not at all.

    study.json      what was asked: command, config, versions; the same run gives the same bytes
    status.json     how it goes: times, host, how it ended; the only file with the clock in it
    .lock           held by the process that works here; the system frees it when that process ends
"""

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .._errors import Exit, MechanismError, StudyError
from .._io._files import replacing

STUDY, STATUS, CONFIG, LOCK = "study.json", "status.json", "config.toml", ".lock"
_OTHER = "choose another --out"
_ROOM = 50_000_000  # bytes that must be free besides what is estimated


def digest(data: Any) -> str:
    """A hash of plain data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


@contextmanager
def files() -> Iterator[None]:
    """What goes wrong with files in here ends the study as such."""
    try:
        yield
    except MechanismError as error:
        raise StudyError(str(error), Exit.FILES) from error
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        advice = "is there room, and may you write there?"
        raise StudyError(f"{name}{error.strerror or error}; {advice}", Exit.FILES) from error


class Folder:
    """An open folder: made or found, locked, and known to belong to this study."""

    def __init__(self, path: Path, about: Mapping[str, Any], lock: int, made: bool):
        self.path, self.about, self._lock, self._made = path, dict(about), lock, made
        self._old = {name: self.read(name) for name in (STUDY, STATUS, CONFIG)}
        self.started = datetime.now(UTC)
        self.fresh = True  # whether to begin anew, or to go on from a checkpoint
        self.written: list[str] = []
        status = _json(path / STATUS) or {}
        self.before = status.get("state")  # how an earlier run in this folder ended
        self.files = [n for n in status.get("files", []) if isinstance(n, str) and _inside(n)]  # what it wrote

    def write(self, name: str, data: bytes | str) -> Path:
        """Puts a file into the folder, whole or not at all."""
        place = self.place(name)
        with files(), replacing(place) as temporary:
            temporary.write_bytes(data.encode() if isinstance(data, str) else data)
        return place

    def place(self, name: str) -> Path:
        """Where a file of that name goes; its folder is there."""
        place = self.path / name
        with files():
            place.parent.mkdir(parents=True, exist_ok=True)
        if name not in self.written:
            self.written.append(name)
        return place

    def read(self, name: str) -> bytes | None:
        with files(), suppress(FileNotFoundError):
            return (self.path / name).read_bytes()

    def remove(self, *names: str) -> None:
        for name in names:
            with files():
                (self.path / name).unlink(missing_ok=True)

    def status(self, state: str, **more: Any) -> None:
        """Keeps how it goes."""
        now = datetime.now(UTC)
        about = {
            "state": state,
            "started": self.started.isoformat(timespec="seconds"),
            "updated": now.isoformat(timespec="seconds"),
            "seconds": round((now - self.started).total_seconds(), 3),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            **more,
        }
        self.write(STATUS, json.dumps(about, indent=1) + "\n")

    def finish(self, state: str, **more: Any) -> None:
        """Says how it ended, and clears what an earlier run left that this one did not write again."""
        kept = set(self.written) | {STUDY, STATUS}
        if state == "finished":
            self.remove(*(name for name in self.files if name not in kept))
        else:
            kept |= set(self.files)
        self.status(state, files=sorted(kept), **more)

    def discard(self) -> None:
        """Leaves the place as it was before: nothing but the description of the study has been written."""
        for name, data in self._old.items():
            self.remove(name) if data is None else self.write(name, data)
        if self._made:
            with suppress(OSError):
                (self.path / LOCK).unlink(missing_ok=True)
                self.path.rmdir()

    @property
    def untouched(self) -> bool:
        """Whether nothing but the description of the study has been written."""
        return set(self.written) <= {STUDY, STATUS, CONFIG}

    def close(self) -> None:
        with suppress(OSError):
            (self.path / LOCK).unlink(missing_ok=True)
        with suppress(OSError):
            os.close(self._lock)


def _inside(name: str) -> bool:
    return not os.path.isabs(name) and ".." not in Path(name).parts


@contextmanager
def open_folder(
    path: Path, about: Mapping[str, Any], *, resume: bool, overwrite: bool, size: int = 0
) -> Iterator[Folder]:
    """The folder of a study, locked while the block runs.

    An existing one is refused unless it is empty, belongs to the same study (`resume`) or to any study (`overwrite`).
    """
    if resume and overwrite:
        raise StudyError("--resume and --overwrite exclude each other; give one of them")
    fresh, made = _check(path, about, resume, overwrite), not path.exists()
    _make(path, size)
    folder = Folder(path, about, _take_lock(path), made)
    try:
        folder.write(STUDY, json.dumps(folder.about, indent=1, sort_keys=True) + "\n")
        folder.status("running", files=folder.files)
        folder.fresh = fresh or overwrite
        yield folder
    finally:
        folder.close()


def _check(path: Path, about: Mapping[str, Any], resume: bool, overwrite: bool) -> bool:
    """Whether the folder is new; refuses one that holds something else."""
    if path.exists() and not path.is_dir():
        raise StudyError(f"{path} is a file, not a folder; choose another --out")
    with files():
        inside = sorted(p.name for p in path.iterdir() if p.name != LOCK) if path.exists() else []
    if not inside:
        return True
    old = _json(path / STUDY)
    if old is None:
        raise StudyError(f"{path} is a folder with other things in it ({inside[0]}); choose another --out")
    if overwrite:
        return False
    if not resume:
        state = (_json(path / STATUS) or {}).get("state", "unknown")
        hint = "--resume goes on with it, " if state != "finished" else ""
        raise StudyError(f"{path} holds a study already ({state}); {hint}--overwrite replaces it, --out names another")
    if old.get("hash") != about["hash"]:
        raise StudyError(
            f"{path} belongs to another study: {_difference(old, about)}; --overwrite replaces it, --out names another"
        )
    return False


def _difference(old: Any, new: Any, path: str = "") -> str:
    """The first thing that differs between two studies."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key) and key != "hash":
                return _difference(old.get(key), new.get(key), f"{path}.{key}".removeprefix("."))
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for k, (a, b) in enumerate(zip(old, new, strict=True)):
            if a != b:
                return _difference(a, b, f"{path}[{k + 1}]")
    short = lambda x: "nothing" if x is None else str(x)[:40]
    return f"{path} was {short(old)} and is {short(new)}"


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _make(path: Path, size: int) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path).free
    except OSError as error:
        raise StudyError(f"{path} cannot be made: {error.strerror or error}; {_OTHER}", Exit.FILES) from error
    if free < size + _ROOM:
        need = (size + _ROOM) / 1e6
        room = f"{free / 1e6:.0f} MB are free, and {need:.0f} are needed"
        raise StudyError(f"{path}: {room}; make room, or {_OTHER}", Exit.FILES)
    if not os.access(path, os.W_OK | os.X_OK):
        raise StudyError(f"{path} is not writable; {_OTHER}", Exit.FILES)


def _take_lock(path: Path) -> int:
    """An open file that nobody else has locked; a lock whose process is gone is no lock."""
    place = path / LOCK
    while True:
        try:
            lock = os.open(place, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StudyError(f"{path} is not writable: {error.strerror}; choose another --out", Exit.FILES) from error
        if not _locked(lock):
            holder = os.read(lock, 200).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            raise StudyError(f"{path} is in use by another process ({holder}); wait, or {_OTHER}", Exit.FILES)
        try:
            same = os.path.sameopenfile(lock, other := os.open(place, os.O_RDWR))
            os.close(other)
        except OSError:
            same = False
        if same:  # else its holder removed the file while we opened it
            os.ftruncate(lock, 0)
            os.write(lock, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
            return lock
        os.close(lock)


def _locked(file: int) -> bool:
    try:
        import fcntl
    except ImportError:
        import msvcrt

        attempt = lambda: msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        attempt = lambda: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        attempt()
    except OSError:
        return False
    return True
