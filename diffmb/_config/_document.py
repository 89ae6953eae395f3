"""DOCUMENT: a TOML file as plain data that knows where each entry stands. No jax inside.

A file is untrusted: it is read whole, up to a limit, and holds only numbers, words, lists and tables.
"""

import math
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from .._errors import Exit, StudyError
from .._names import nearest
from .._units import quantity

LIMIT = 4_000_000  # bytes of a file
_ENTRIES = 200_000  # numbers, words and tables of a file
_DEPTH = 32

Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """What a file holds, and its text, to find lines in."""

    name: str
    text: str
    data: dict[str, Any]
    given: tuple[str, ...] = ()  # keys that --set gave

    @property
    def root(self) -> "Entry":
        return Entry(self, (), self.data)


@dataclass(frozen=True)
class Entry:
    """A value of a document, with the keys that lead to it."""

    document: Document
    keys: Keys
    value: Any

    def __getitem__(self, key: str | int) -> "Entry":
        return Entry(self.document, (*self.keys, key), self.value[key])

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    @property
    def items(self) -> list["Entry"]:
        """The members of a list."""
        return [self[k] for k in range(len(self.value))]

    @property
    def path(self) -> str:
        return dotted(self.keys)

    def fail(self, message: str) -> NoReturn:
        """Refuses this entry, saying where it stands."""
        given = self.path in self.document.given
        line = None if given else find_line(self.document.text, self.keys)
        place = "--set" if given else f"{self.document.name}{f':{line}' if line else ''}:"
        raise StudyError(f"{place} {self.path + ' ' if self.path else ''}{message}")

    def table(self, known: list[str] | None = None) -> dict[str, "Entry"]:
        """The entries of a table; one that is not `known` is refused."""
        if not isinstance(self.value, dict):
            self.fail(f"is {show(self.value)}; give a table, {self.keys[-1] if self.keys else 'it'} = {{...}}")
        for key in self.value:
            if known is not None and key not in known:
                self[key].fail(f"is not known; {nearest(key, known)}")
        return {key: self[key] for key in self.value}

    def members(self) -> list["Entry"]:
        if not isinstance(self.value, list):
            self.fail(f"is {show(self.value)}; give a list, [...]")
        return self.items

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value:
            self.fail(f"is {show(self.value)}; give a text")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            self.fail(f"is {show(self.value)}; give true or false")
        return self.value

    def choice(self, known: list[str]) -> str:
        if self.text() not in known:
            self.fail(f'is "{self.value}"; {nearest(self.value, known)}')
        return self.value

    def integer(self, least: int = 1, most: int = 10_000_000) -> int:
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.fail(f"is {show(self.value)}; give a whole number")
        if not least <= self.value <= most:
            self.fail(f"is {self.value}; give a whole number from {least} to {most}")
        return self.value

    def number(self, unit: str | None = None) -> float:
        """A finite number; one with a unit comes in SI."""
        if isinstance(self.value, str):
            try:
                found = quantity(self.value, unit)
            except ValueError as error:
                self.fail(str(error))
        elif isinstance(self.value, bool) or not isinstance(self.value, int | float):
            self.fail(f"is {show(self.value)}; give a number")
        else:
            found = float(self.value)
        if not math.isfinite(found):
            self.fail(f"is {found}; give a finite number")
        return found

    def positive(self, unit: str | None = None) -> float:
        found = self.number(unit)
        if not found > 0:
            self.fail(f"is {found:g}; give a number above zero")
        return found


def show(value: Any) -> str:
    """A value as TOML writes it, shortly."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'the text "{value[:40]}"'
    if isinstance(value, dict):
        return "a table"
    return "a list" if isinstance(value, list) else str(value)


def dotted(keys: Keys) -> str:
    """mechanism.bodies[2].mass"""
    text = "".join(f"[{key + 1}]" if isinstance(key, int) else f".{key}" for key in keys)
    return text.removeprefix(".")


def read_document(path: str) -> Document:
    """The data of a TOML file, or a refusal that says what is wrong with it."""
    place = Path(path)
    if place.is_dir():
        raise StudyError(f"{path} is a folder; give the name of a TOML file")
    try:
        with open(place, "rb") as file:
            raw = file.read(LIMIT + 1)
    except FileNotFoundError:
        raise StudyError(f"{path} does not exist; is the path right?") from None
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror or error}", Exit.FILES) from None
    return parse_document(path, raw)


def parse_document(name: str, raw: bytes) -> Document:
    if len(raw) > LIMIT:
        raise StudyError(f"{name} is larger than {LIMIT // 1_000_000} MB; a study is a short text")
    if not raw.strip():
        raise StudyError(f"{name} is empty; see configs/ for examples")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StudyError(f"{name} is no text: byte {error.start} is not UTF-8; give a TOML file") from None
    if "\0" in text:
        raise StudyError(f"{name} is no text: it holds zero bytes; give a TOML file")
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
        place = f":{where[1]}:{where[2]}" if where else f":{len(text.splitlines())}"  # "at end of document"
        message = re.sub(r"\s*\(at [^)]*\)", "", str(error))
        raise StudyError(f"{name}{place}: not TOML: {message[:1].lower()}{message[1:]}") from None
    except RecursionError:
        raise StudyError(f"{name}: lists or tables are nested too deeply") from None
    _check_size(name, data)
    return Document(name, text, data)


def _check_size(name: str, data: Any) -> None:
    count, level = 0, [data]
    for _ in range(_DEPTH):
        level = [v for x in level if isinstance(x, dict | list) for v in (x.values() if isinstance(x, dict) else x)]
        count += len(level)
        if not level:
            break
    else:
        raise StudyError(f"{name}: lists or tables are nested more than {_DEPTH} deep")
    if count > _ENTRIES:
        raise StudyError(f"{name}: {count} entries; the limit is {_ENTRIES}")


def override(document: Document, settings: list[str]) -> Document:
    """The document with `a.b=c` put in; c is TOML, or else a text. `mechanism.bodies.crank.mass` picks by name."""
    for setting in settings:
        keys, equals, text = setting.partition("=")
        if not equals or not keys.strip():
            raise StudyError(f"--set {setting}: write --set section.key=value")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            value = text.strip()
        data, path = _put(document.data, keys.strip().split("."), value, setting)
        document = Document(document.name, document.text, data, (*document.given, dotted(path)))
    return document


def _put(data: Any, keys: list[str], value: Any, setting: str) -> tuple[Any, Keys]:
    """A copy of the data with a value in it, and the keys that lead there."""
    first, rest = keys[0], keys[1:]
    if isinstance(data, list):
        names = [item.get("name") if isinstance(item, dict) else None for item in data]
        places = [str(k + 1) for k in range(len(data))]
        if first not in names and first not in places:
            known = [name for name in names if name] or places
            raise StudyError(f"--set {setting}: there is no {first!r}; {nearest(first, known)}")
        key: str | int = names.index(first) if first in names else places.index(first)
    elif isinstance(data, dict):
        key = first
    else:
        raise StudyError(f"--set {setting}: {first!r} is inside of {show(data)}, which has no entries")
    if not rest:
        inner, path = value, ()
    else:
        whole: Any = data
        here = whole[key] if isinstance(key, int) or key in whole else {}
        inner, path = _put(here, rest, value, setting)
    copy: Any = list(data) if isinstance(data, list) else dict(data)
    copy[key] = inner
    return copy, (key, *path)


def find_line(text: str, keys: Keys) -> int | None:
    """The line of an entry, where the text is laid out in the usual way; that of the table around it otherwise."""
    header: Keys = ()
    counts: dict[Keys, int] = {}
    found: dict[Keys, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]", line):
            names: Keys = tuple(part.strip().strip("\"'") for part in match[2].split("."))
            if match[1] == "[[":
                counts[names] = counts.get(names, -1) + 1
                names = (*names, counts[names])
            elif names[:-1] in counts:
                names = (*names[:-1], counts[names[:-1]], names[-1])
            header = names
            found.setdefault(header, number)
        elif match := re.match(r"\s*([\w.\"'-]+?)\s*=", line):
            names = tuple(part.strip("\"'") for part in match[1].split("."))
            found.setdefault((*header, *names), number)
    for length in range(len(keys), 0, -1):
        if keys[:length] in found:
            return _inside(text, found[keys[:length]], keys[length:])
    return None


def _inside(text: str, line: int, rest: Keys) -> int:
    """The line of an entry within an inline list or table that begins at `line`."""
    lines = text.splitlines()
    for key in rest:
        if isinstance(key, int):
            starts = [k for k in range(line - 1, len(lines)) if re.match(r"[^#]*\{", lines[k])]
            line = starts[key] + 1 if key < len(starts) and starts[key] - starts[0] == key else line
        else:
            inside = (k for k in range(line - 1, len(lines)) if re.search(rf"\b{re.escape(key)}\b", lines[k]))
            line = next(inside, line - 1) + 1
    return line
