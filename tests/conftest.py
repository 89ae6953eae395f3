"""Double precision, and programs that compile quickly: the tests run each one a few times only.

The flags choose XLA's older emitters and light code generation (a quarter of the compile time, same arithmetic);
benchmarks and experiments run without them.
"""

import os

FLAGS = (
    "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS}".strip()

import jax  # noqa: E402  (the flags are read when jax starts its backend)

jax.config.update("jax_enable_x64", True)
