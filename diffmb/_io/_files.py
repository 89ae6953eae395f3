"""FILES, whole or not at all: what is written takes its place at the end, what is read says what is wrong with it."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .._errors import MechanismError


def check_place(path: Path) -> None:
    """Refuses a place where no file can be, before anything is computed."""
    if not os.path.isdir(path.parent):
        raise MechanismError(f"{str(path)!r} cannot be written: there is no folder {str(path.parent)!r}; make it first")
    if os.path.isdir(path):
        raise MechanismError(f"{str(path)!r} cannot be written: it is a folder; give the name of a file")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to. When the block ends well the file is on the disk and takes the place of `path`;
    else it is removed, and `path` is what it was."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        advice = "is there room, and may you write there? What was there before is untouched"
        raise MechanismError(f"{str(path)!r} cannot be written: {error.strerror or error}; {advice}") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def content(path: Path, what: str) -> bytes:
    """The bytes of a file."""
    name = f"{what} {str(path)!r}"
    if os.path.isdir(path):
        raise MechanismError(f"{name} is a folder; give the name of a file")
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise MechanismError(f"{name} is no ordinary file")
        if size > _memory():
            raise MechanismError(f"{name} has {size} bytes, more than this machine has memory")
        found = path.read_bytes()
    except FileNotFoundError as error:
        raise MechanismError(f"{name} does not exist; is the path right, and its folder complete?") from error
    except OSError as error:
        raise MechanismError(f"{name} cannot be read: {error.strerror or error}") from error
    if not found:
        raise MechanismError(f"{name} is empty; write it again")
    return found


def _memory() -> int:
    """Bytes of memory of this machine, as far as it says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**40
