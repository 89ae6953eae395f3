"""The system of constrained motion, solved with redundant rows: batch axis last.

    [ M   G^T ] [  x  ]   [ b1 ]          N = 1 - G G+: projector on the redundant combinations of rows
    [ G   -N  ] [ lam ] = [ b2 ]          regular and symmetric whatever the rank of G, if M is positive on G x = 0

Its solution is x with G x = b2 (as far as the rows agree), and the shortest lam in M x + G^T lam = b1, less N b2. Two
ways, the one with the smaller matrices:

by rows (few rows on many speeds)                by speeds (as many rows as speeds, or more)
    a = M^-1 b1   Z = M^-1 G^T   A = G Z             G+ = (G^T G)+ G^T        P = 1 - G+ G: motions the rows allow
    lam = A+ (G a - b2)                              x = G+ b2 + Q^-1 P (b1 - M G+ b2)       Q = P M P + s (1 - P)
    x = a - Z lam                                    lam = G+^T (b1 - M x)

Both square the condition of G; one refinement takes that out again. By rows M is never formed: elimination along the
tree, O(n). By speeds M may be singular, if the rows hold what has no inertia.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from ._dynamics import composite, mass_solver
from ._pseudo_inverse import inverse, product, pseudo_inverse
from ._topology import Topology


def by_rows(nc: int, nv: int) -> bool:
    """The documented choice."""
    return nc < nv


class Rows(eqx.Module):
    """The system by rows."""

    G: Array
    Z: Array
    A: Array
    A_plus: Array
    S: Array
    J: Array
    topology: Topology = eqx.field(static=True)

    def redundant(self, b: Array) -> Array:
        """N b."""
        return _twice(lambda b: product(self.A, product(self.A_plus, b)), b)

    def preimage(self, lam: Array) -> Array:
        """w with G w = lam, for lam in the range of G."""
        return product(self.Z, product(self.A_plus, lam))

    def solve(self, b1: Array, b2: Array) -> tuple[Array, Array]:
        a = mass_solver(self.topology)(self.S, self.J, b1[:, None])[:, 0]
        rest = self.redundant(b2)
        x, lam = self.resolve(a, b2 - rest)
        return x, lam - rest

    def resolve(self, a: Array, b2: Array) -> tuple[Array, Array]:
        """From a = M^-1 b1, for b2 in the range of G."""
        lam = product(self.A_plus, product(self.G, a) - b2)
        x = a - product(self.Z, lam)
        lam = lam + product(self.A_plus, product(self.G, x) - b2)
        return a - product(self.Z, lam), lam


class Speeds(eqx.Module):
    """The system by speeds."""

    G: Array
    G_plus: Array
    M: Array
    P: Array
    Q_inverse: Array

    def redundant(self, b: Array) -> Array:
        return _twice(lambda b: product(self.G, product(self.G_plus, b)), b)

    def preimage(self, lam: Array) -> Array:
        return product(self.G_plus, lam)

    def solve(self, b1: Array, b2: Array) -> tuple[Array, Array]:
        x = product(self.G_plus, b2)
        x = x + product(self.G_plus, b2 - product(self.G, x))
        for _ in range(2):
            rest = b1 - product(self.M, x)
            x = x + product(self.P, product(self.Q_inverse, product(self.P, rest)))
        rest = b1 - product(self.M, x)
        lam = product(jnp.swapaxes(self.G_plus, 0, 1), rest)
        missing = rest - product(jnp.swapaxes(self.G, 0, 1), lam)
        lam = lam + product(jnp.swapaxes(self.G_plus, 0, 1), missing)
        return x, lam - self.redundant(b2)


def _twice(onto_range: Callable[[Array], Array], b: Array) -> Array:
    """b less its part in the range of G, and again: the second time takes out what the conditioning has left."""
    rest = b - onto_range(b)
    return rest - onto_range(rest)


def prepare_rows(topology: Topology, S: Array, J: Array, G: Array, Z: Array) -> Rows:
    A = product(G, Z)
    return Rows(G, Z, A, pseudo_inverse(A), S, J, topology)


def prepare_speeds(topology: Topology, S: Array, J: Array, G: Array) -> Speeds:
    M = composite(topology, S, J)
    turned = jnp.swapaxes(G, 0, 1)
    G_plus = product(pseudo_inverse(product(turned, G)), turned)
    one = jnp.eye(topology.nv, dtype=G.dtype)[..., None]
    P = one - product(G_plus, G)
    scale = (M * one).sum((0, 1)) / topology.nv
    Q = product(product(P, M), P) + scale * (one - P)
    return Speeds(G, G_plus, M, P, inverse(Q))


def prepare(topology: Topology, S: Array, J: Array, G: Array) -> Rows | Speeds:
    """The factors of the system, with derivatives."""
    if not by_rows(G.shape[0], topology.nv):
        return prepare_speeds(topology, S, J, G)
    return prepare_rows(topology, S, J, G, mass_solver(topology)(S, J, jnp.swapaxes(G, 0, 1)))
