"""COMMAND LINE: `diffmb run study.toml` and its sisters. jax is imported when a study really runs.

    0 done    2 bad input    3 solve failed    4 some members of a batch failed    5 files    130 interrupted
"""

import argparse
import os
import re
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from ._config._document import Document, override, read_document
from ._config._schema import Config, config_of
from ._errors import Exit, MechanismError, StudyError

_COMMANDS = {
    "run": "simulate the motion",
    "kinematics": "the motion that the drives prescribe, without integration",
    "sensitivity": "derivatives of responses with respect to named numbers",
    "optimise": "change numbers until a response is smallest",
    "fit": "find numbers from measured data",
    "control": "find the inputs of a best motion",
    "sweep": "responses over grids or samples of numbers",
    "check": "read and check a study, write nothing",
    "view": "show the motion in the browser, on this machine only",
    "doctor": "versions, devices, precision, extras, cache, disk",
}
_EPILOG = "exit codes: 0 done, 2 bad input, 3 solve failed, 4 some members failed, 5 files, 130 interrupted"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        "diffmb", description="Exact gradients of mechanisms: studies from TOML files.", epilog=_EPILOG
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in _COMMANDS.items():
        own = commands.add_parser(name, help=text, description=text[:1].upper() + text[1:] + ".", epilog=_EPILOG)
        own.add_argument("--debug", action="store_true", help="show the traceback of an error")
        if name == "doctor":
            continue
        own.add_argument("config", metavar="CONFIG", help="a study in TOML")
        own.add_argument("--set", action="append", default=[], metavar="A.B=C", help="another value, as in TOML")
        own.add_argument("--mechanism", metavar="PACKAGE.MODULE:FUNCTION", help="a function that builds the mechanism")
        own.add_argument("--quiet", action="store_true", help="only errors")
        if name == "view":
            own.add_argument("--port", type=int, default=8080, help="of the page on 127.0.0.1")
        elif name != "check":
            own.add_argument("--out", metavar="FOLDER", help="default: out/CONFIG_COMMAND")
            own.add_argument("--resume", action="store_true", help="go on with what is in the folder")
            own.add_argument("--overwrite", action="store_true", help="replace what is in the folder")
    return top


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    given = parser().parse_args(arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: _say(f"diffmb: warning: {message}")
        try:
            return _doctor() if given.command == "doctor" else _study(given)
        except StudyError as error:
            if given.debug:
                raise
            _say(f"diffmb: {_line(error)}")
            return int(error.code)
        except MechanismError as error:
            if given.debug:
                raise
            _say(f"diffmb: {_line(error)}")
            return int(Exit.BAD_INPUT)
        except KeyboardInterrupt:
            _say("diffmb: interrupted")
            return int(Exit.INTERRUPTED)
        except OSError as error:
            if given.debug:
                raise
            _say(f"diffmb: {_line(error)}")
            return int(Exit.FILES)
        except Exception as error:
            if given.debug:
                raise
            _say(f"diffmb: {type(error).__name__}: {_line(error)}; --debug shows where")
            return 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _study(given: argparse.Namespace) -> int:
    document = override(read_document(given.config), given.set)
    config = config_of(document)
    factory = None if given.mechanism is None else _factory(given.mechanism)
    said = prepare_jax()
    if not given.quiet:
        _say("diffmb: " + ", ".join(said))
    commands = import_module(f"{__package__}._study._commands")
    study = import_module(f"{__package__}._study._study").Study(config, document, factory)
    watch = import_module(f"{__package__}._study._watch").Watch(given.quiet)
    if given.command == "check":
        print(commands.check(study, watch))  # noqa: T201
        return 0
    if given.command == "view":
        return _view(study, watch, given.port)
    return _in_folder(study, watch, given, document, config)


def _in_folder(study: Any, watch: Any, given: argparse.Namespace, document: Document, config: Config) -> int:
    folders = import_module(f"{__package__}._study._folder")
    watching = import_module(f"{__package__}._study._watch")
    works = import_module(f"{__package__}._study._commands")
    work = works.work_of(given.command)
    if work is None:
        raise StudyError(f"diffmb {given.command} is not part of this version")
    about = describe(given, document)
    path = Path(given.out or Path("out") / f"{Path(given.config).stem}_{given.command}")
    size = 200 * len(study.ts) * 8
    with folders.open_folder(path, about, resume=given.resume, overwrite=given.overwrite, size=size) as folder:
        before = folder.before
        if given.resume and before == "finished":
            watch.say(f"{path} is finished already")
            folder.status("finished", files=folder.files)
            return 0
        folder.write("config.toml", document.text)
        try:
            with watching.interruptible(watch):
                work(study, folder, watch)
        except StudyError as error:
            if error.code == Exit.BAD_INPUT and folder.untouched:
                folder.discard()
            else:
                folder.finish("interrupted" if error.code == Exit.INTERRUPTED else "failed", message=_line(error))
            raise
        except BaseException as error:
            folder.finish("failed", message=_line(error))
            raise
        folder.finish("finished")
    watch.say(f"wrote {path}{os.sep}: report.md, and what it lists")
    return 0


def describe(given: argparse.Namespace, document: Document) -> dict[str, Any]:
    """What makes a study the one it is: the same here means that a folder may be resumed."""
    folders = import_module(f"{__package__}._study._folder")
    trajectory = import_module(f"{__package__}._trajectory")
    versions = trajectory.versions()
    about = {
        "format": "diffmb study",
        "command": given.command,
        "config": document.data,
        "mechanism": given.mechanism,
        "versions": ", ".join(f"{key.removesuffix('_version')} {value}" for key, value in versions.items()),
        "device": trajectory.jax.default_backend(),
        "git": _git(),
    }
    key = {name: about[name] for name in ("command", "config", "mechanism", "versions", "device")}
    try:
        return {**about, "config_file": Path(given.config).name, "hash": folders.digest(key)}
    except TypeError:
        raise StudyError(f"{given.config}: dates and times of day mean nothing in a study") from None


def _git() -> str | None:
    """The commit of the working folder, read from its files."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        try:
            head = (folder / ".git" / "HEAD").read_text().strip()
            name = head.removeprefix("ref: ")
            return head if name == head else (folder / ".git" / name).read_text().strip()
        except OSError:
            continue
    return None


def _factory(name: str) -> Any:
    """The function that the user named on the command line, from an installed module."""
    module, colon, function = name.partition(":")
    if not colon or not re.fullmatch(r"[A-Za-z_][\w.]*", module) or not function.isidentifier():
        raise StudyError(f"--mechanism {name}: write package.module:function")
    try:
        found = getattr(import_module(module), function)
    except ImportError as error:
        raise StudyError(f"--mechanism {name}: {error}; is the module installed?") from error
    except AttributeError:
        raise StudyError(f"--mechanism {name}: {module} has no {function}") from None
    if not callable(found):
        raise StudyError(f"--mechanism {name}: {function} is no function")
    return found


def prepare_jax() -> list[str]:
    """Double precision, quick compilation and a cache of compiled programs; says what was set."""
    flag = "--xla_cpu_use_fusion_emitters=false"
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_cpu_use_fusion_emitters" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}".strip()
    jax = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    said = ["float64", flag]
    if jax.config.jax_compilation_cache_dir is None:
        place = cache_folder()
        if place is None:
            _say("diffmb: warning: no compile cache: its folder cannot be used; programs are compiled anew")
            return said
        jax.config.update("jax_compilation_cache_dir", str(place))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
    return [*said, f"compile cache {jax.config.jax_compilation_cache_dir}"]


def cache_folder() -> Path | None:
    """~/.cache/diffmb/jax, made for the user alone; None if it cannot be used."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(root) / "diffmb" / "jax"
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        usable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
        own = not hasattr(os, "getuid") or place.stat().st_uid == os.getuid()  # compiled programs are code
    except OSError:
        return None
    return place if usable and own else None


def _view(study: Any, watch: Any, port: int) -> int:
    view = import_module(f"{__package__}._viewer._live").view
    commands = import_module(f"{__package__}._study._commands")
    mech, traj, trace = commands.motion_to_view(study)
    watch.say(f"http://127.0.0.1:{port} until Ctrl-C")
    view(mech, traj, trace=trace, title=study.config.title or "diffmb", speed=study.config.output.speed, port=port)
    return 0


def _doctor() -> int:
    said = prepare_jax()
    for line in import_module(f"{__package__}._study._doctor").report(said, cache_folder()):
        print(line)  # noqa: T201
    return 0
