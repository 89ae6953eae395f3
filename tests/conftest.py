"""Double precision, and programs that compile quickly: the tests run each one a few times only.

The flags choose XLA's older emitters, light code generation and one piece of code for each program, as the workers of
the tests fill the cores already (a quarter of the compile time, same arithmetic); benchmarks and experiments run
without them.
"""

import os
from pathlib import Path

FLAGS = (
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
)
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()

import jax  # noqa: E402  (the flags are read when jax starts its backend)
import pytest  # noqa: E402

jax.config.update("jax_enable_x64", True)

MAPS = Path("/proc/self/maps")  # one line for each piece of memory; every compiled program takes several
MOST_MAPS = 15_000  # Linux kills a process that passes 65530
MEMORY = Path("/proc/self/statm")  # pages: all, and those that are in memory
MOST_PAGES = 750_000  # of 4 kB: 3 GB


@pytest.fixture(scope="module", autouse=True)
def _few_programs():
    """Compiled programs are dropped between files before they exhaust what the system grants to a process."""
    yield
    many = MAPS.exists() and MAPS.read_text().count("\n") > MOST_MAPS
    if many or (MEMORY.exists() and int(MEMORY.read_text().split()[1]) > MOST_PAGES):
        jax.clear_caches()
