"""Inertial parameters that cannot leave the physical set: the log-Cholesky form of the pseudo-inertia.

    J = [[Sigma_o, m c], [m c^T, m]] = U U^T,     Sigma_o = integral of r r^T dm about the body's origin

                  [ e^d1  s12   s13   t1 ]
    U = e^alpha * [  0    e^d2  s23   t2 ]        theta = (alpha, d1, d2, d3, s12, s23, s13, t1, t2, t3)
                  [  0     0    e^d3  t3 ]
                  [  0     0     0    1  ]

Rucker and Wensing, Smooth Parameterization of Rigid-Body Inertia, 2022. Any ten numbers give a body with positive mass
and inertia and strict triangle inequality, and each such body has one theta. Multiplying out: m = e^(2 alpha), c = t,
and with L the upper left 3x3 block of U e^-alpha

    Sigma = m L L^T about the centre of mass,     I = tr(Sigma) 1 - Sigma,     Sigma = 1/2 tr(I) 1 - I

so we never form J, and a centre of mass far from the origin costs no digits.
"""

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from ._rigid import RigidBody


def body_from_log_cholesky(name: str, theta) -> RigidBody:
    """The body of ten unconstrained numbers."""
    theta = as_array(theta)
    if theta.shape != (10,):
        raise MechanismError(f"body {name!r}: theta has shape {theta.shape}; it needs ten numbers (alpha, d, s, t)")
    alpha, d1, d2, d3, s12, s23, s13 = theta[:7]
    zero = jnp.zeros_like(alpha)
    L = jnp.stack([
        jnp.stack([jnp.exp(d1), s12, s13]),
        jnp.stack([zero, jnp.exp(d2), s23]),
        jnp.stack([zero, zero, jnp.exp(d3)]),
    ])  # fmt: skip
    mass = jnp.exp(2.0 * alpha)
    sigma = mass * (L @ L.T)
    return RigidBody(name, mass, theta[7:], jnp.trace(sigma) * jnp.eye(3, dtype=sigma.dtype) - sigma)


def inertia_to_log_cholesky(body: RigidBody) -> Array:
    """The ten numbers of a body with mass and with extent in all three directions."""
    sigma = 0.5 * jnp.trace(body.inertia) * jnp.eye(3, dtype=body.inertia.dtype) - body.inertia
    if is_concrete(body.mass, sigma):
        mass, smallest = float(body.mass), float(np.linalg.eigvalsh(np.asarray(sigma)).min())
        if not (mass > 0.0 and smallest > 0.0):
            raise MechanismError(
                f"body {body.name!r} has mass {mass:g} kg and second moment {smallest:g} kg m2 in its thinnest "
                f"direction; log-Cholesky numbers need both positive: give it mass and some thickness"
            )
    A = sigma / body.mass
    # A = L L^T with L upper triangular, from the last column to the first.
    l33 = jnp.sqrt(A[2, 2])
    s23, s13 = A[1, 2] / l33, A[0, 2] / l33
    l22 = jnp.sqrt(A[1, 1] - s23 * s23)
    s12 = (A[0, 1] - s13 * s23) / l22
    l11 = jnp.sqrt(A[0, 0] - s12 * s12 - s13 * s13)
    shape = jnp.stack([0.5 * jnp.log(body.mass), jnp.log(l11), jnp.log(l22), jnp.log(l33), s12, s23, s13])
    return jnp.concatenate([shape, body.com])
