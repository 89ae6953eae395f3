"""DOCTOR: what this machine has, and what it lacks."""

import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import jax
import jax.numpy as jnp

_NEEDED = ("diffmb", "jax", "jaxlib", "equinox", "diffrax", "optax", "numpy", "scipy")
_EXTRAS = {"viz": ("matplotlib", "viser"), "io": ("xarray", "h5netcdf", "h5py"), "cuda12": ("jax-cuda12-plugin",)}


def report(said: list[str], cache: Path | None) -> list[str]:
    """Lines; what needs attention begins with "!"."""
    lines = [f"python {platform.python_version()} on {platform.system()} {platform.machine()}"]
    lines += [_installed(name) for name in _NEEDED]
    lines += _devices()
    small = float(jnp.finfo(jnp.zeros(()).dtype).eps)
    lines.append(f"precision: {jnp.zeros(()).dtype} (spacing {small:.1e}); set: {', '.join(said)}")
    for extra, names in _EXTRAS.items():
        missing = [name for name in names if _version(name) is None]
        if missing and extra != "cuda12":
            lines.append(f'! extra {extra}: {", ".join(missing)} missing: pip install "diffmb[{extra}]"')
        else:
            lines.append(f"extra {extra}: {'not installed' if missing else 'complete'}")
    lines.append(f"cache: {_size(cache)}" if cache else "! no compile cache: ~/.cache/diffmb/jax cannot be used")
    free = shutil.disk_usage(Path.cwd()).free / 1e9
    lines.append(f"{'! ' if free < 1 else ''}disk: {free:.1f} GB free here")
    return lines


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _installed(name: str) -> str:
    found = _version(name)
    if found is None:
        return f"! {name}: not installed as a package" if name != "diffmb" else f"{name}: from {sys.path[0] or '.'}"
    old = name == "jax" and tuple(int(x) for x in found.split(".")[:2]) < (0, 10)
    return f"! {name} {found} is too old: pip install --upgrade jax" if old else f"{name} {found}"


def _devices() -> list[str]:
    try:
        found = jax.devices()
    except RuntimeError as error:
        return [f"! no device: {' '.join(str(error).split())}"]
    lines = [f"devices: {', '.join(str(d) for d in found)}"]
    if found[0].platform == "cpu":
        plugin = _version("jax-cuda12-plugin") or _version("jax-cuda13-plugin")
        why = "the CUDA plugin is there, but finds no GPU" if plugin else "no GPU plugin is installed"
        lines.append(f"{'! ' if plugin else ''}programs run on the CPU: {why}")
    return lines


def _size(cache: Path) -> str:
    sizes = [p.stat().st_size for p in cache.iterdir() if p.is_file()]
    return f"{cache}, {len(sizes)} programs, {sum(sizes) / 1e6:.1f} MB"
