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

A simulation chooses independent rows beforehand, G_e = E G, and keeps the choice during a step: between steps, where
the state is on the manifold, the rank can be decided; at the stages, a little off it, redundant rows would contradict
each other (Bricard's linkage). With f = 1 for the rows of G_e that were found, 0 for places left empty,

    [ M    G_e^T ]           A = G_e W^-1 G_e^T + (1 - f)          W = M                    by rows
    [ G_e  f - 1 ]           x = a - W^-1 G_e^T lam                W = M + G_e^T D G_e      by speeds: G_e x = b2, so
                                                                   the term is known, and W is regular if M is not

Where a run knows which rows can be anything but zero, and they are no more than the speeds, these are its `candidates`:
each has its place in G_e, empty while it is not chosen. Otherwise the places are filled as the choice goes, with any of
the rows, and what is zero in G by its structure is lost. Where it also sees that every joint moves some inertia of its
own body, so that M is regular, as many candidates as speeds still go by rows: ten planar four-bars have 50 rows on 21
speeds, but 20 candidates, and their accelerations take 9600 operations by rows, 23300 by speeds.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._definite import Definite, definite
from ._dynamics import composite, mass_solver
from ._model import Model
from ._product import product
from ._pseudo_inverse import pivoted_cholesky, pseudo_inverse
from ._sweep import take
from ._topology import Topology


def by_rows(nc: int, nv: int) -> bool:
    """The documented choice."""
    return nc < nv


def chosen_by_rows(model: Model) -> bool:
    """The same for rows that are chosen beforehand."""
    return by_rows(model.nc, model.nv) or model.regular


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
    Q: Definite

    def redundant(self, b: Array) -> Array:
        return _twice(lambda b: product(self.G, product(self.G_plus, b)), b)

    def preimage(self, lam: Array) -> Array:
        return product(self.G_plus, lam)

    def solve(self, b1: Array, b2: Array) -> tuple[Array, Array]:
        x = product(self.G_plus, b2)
        x = x + product(self.G_plus, b2 - product(self.G, x))
        for _ in range(2):
            rest = b1 - product(self.M, x)
            x = x + product(self.P, self.Q.solve(product(self.P, rest)))
        rest = b1 - product(self.M, x)
        lam = product(jnp.swapaxes(self.G_plus, 0, 1), rest)
        missing = rest - product(jnp.swapaxes(self.G, 0, 1), lam)
        lam = lam + product(jnp.swapaxes(self.G_plus, 0, 1), missing)
        return x, lam - self.redundant(b2)


def _twice(onto_range: Callable[[Array], Array], b: Array) -> Array:
    """b less its part in the range of G, and again: the second time takes out what the conditioning has left."""
    rest = b - onto_range(b)
    return rest - onto_range(rest)


class Chosen(eqx.Module):
    """The system with independent rows. `resolve` starts from a = W^-1 (b1 + D-term), `solve` from b1."""

    G: Array
    Z: Array
    A: Definite
    found: Array
    D: Array
    W: Definite | None  # by speeds
    S: Array
    J: Array
    topology: Topology = eqx.field(static=True)

    def solve(self, b1: Array, b2: Array) -> tuple[Array, Array]:
        if self.W is None:
            return self.resolve(mass_solver(self.topology)(self.S, self.J, b1[:, None])[:, 0], b2)
        right = b1 + product(jnp.swapaxes(self.G, 0, 1), self.D * self.found * b2)
        return self.resolve(self.W.solve(right), b2)

    def resolve(self, a: Array, b2: Array) -> tuple[Array, Array]:
        lam = self.A.solve(product(self.G, a) - b2)
        x = a - product(self.Z, lam)
        more = self.A.solve(product(self.G, x) - b2 + (self.found - 1.0) * lam)
        return x - product(self.Z, more), lam + more

    def step(self, b: Array) -> Array:
        """The x of G_e x = b that is shortest in the metric of W, as well as the condition of A lets it."""
        return product(self.Z, self.A.solve(b))

    def independence(self) -> Array:
        """The smallest sin^2 of the angle between a row and those before it, (batch,); 1 if there are none."""
        own = (self.A.A * jnp.eye(self.A.A.shape[0], dtype=self.A.A.dtype)[..., None]).sum(1)
        return jnp.where(self.found > 0, self.A.pivots / own, 1.0).min(0, initial=1.0)


def gram(model: Model, S: Array, J: Array, G: Array) -> Array:
    """G W^-1 G^T of the rows that may be chosen, (rows, rows, batch)."""
    own = G if model.candidates is None else take(G, np.array(model.candidates, int))
    turned = jnp.swapaxes(own, 0, 1)
    if chosen_by_rows(model):
        return product(own, mass_solver(model.topology)(S, J, turned))
    W = _weighted(composite(model.topology, S, J), own, jnp.ones_like(own[:, 0]))[0]
    return product(own, definite(W).solve(turned))


def choose_rows(model: Model, A: Array) -> Array:
    """The numbers of independent rows, whose products are A, as floats, and -1 where there are no more: (min(nc, nv),
    batch), best first, or each candidate in its place."""
    _, found, order = pivoted_cholesky(A, min(A.shape[0], model.nv))
    order = jnp.where(found, order, -1.0)
    if model.candidates is None:
        return order
    place = jnp.arange(len(model.candidates), dtype=order.dtype)[:, None]
    number = jnp.asarray(model.candidates, order.dtype)[:, None]
    return jnp.where((order[None] == place[:, None]).any(1), number, -1.0)


def _weighted(M: Array, G: Array, found: Array) -> tuple[Array, Array]:
    """W = M + G^T D G, with D of the size of M on each row, and D."""
    one = jnp.eye(M.shape[0], dtype=M.dtype)[..., None]
    size = (G * G).sum(1)
    D = found * (M * one).sum((0, 1)) / M.shape[0] / jnp.where(size > 0, size, 1.0)
    return M + product(jnp.swapaxes(G, 0, 1), D[:, None] * G), D


def pick(model: Model, G: Array, chosen: Array) -> Array:
    """The chosen rows of G (or entries of a column); zero where there is none."""
    found = (chosen >= 0)[:, None] if G.ndim == 3 else chosen >= 0
    if model.candidates is not None:
        return take(G, np.array(model.candidates, int)) * found
    if G.shape[0] <= 24:
        number = jnp.arange(G.shape[0], dtype=chosen.dtype)
        return product(jnp.where(chosen[:, None] == number[:, None], 1.0, 0.0).astype(G.dtype), G)
    batch = max(G.shape[-1], chosen.shape[-1])
    G, chosen = (jnp.broadcast_to(a, (*a.shape[:-1], batch)) for a in (G, chosen))
    index = jnp.maximum(chosen, 0).astype(int)
    return jnp.where(found, jnp.take_along_axis(G, index[:, None] if G.ndim == 3 else index, 0), 0.0)


def put(model: Model, lam: Array, chosen: Array) -> Array:
    """lam of the chosen rows in its places among all rows: the transpose of `pick`."""
    if model.candidates is not None:
        index = np.full(model.nc, len(model.candidates))
        index[list(model.candidates)] = np.arange(len(model.candidates))
        lam = lam * (chosen >= 0)
        return take(jnp.concatenate([lam, jnp.zeros((1, lam.shape[-1]), lam.dtype)]), index)
    number = jnp.arange(model.nc, dtype=chosen.dtype)
    E = jnp.where(chosen[None] == number[:, None, None], 1.0, 0.0).astype(lam.dtype)
    return product(E, lam)


def prepare_chosen(
    topology: Topology, S: Array, J: Array, G: Array, found: Array, many: bool, Z=None, damping: float = 0.0
) -> Chosen:
    """The factors for independent rows G_e; `many`: by speeds. `Z`: M^-1 G_e^T, if it is known. `damping`, squared and
    times the largest entry, is added to the diagonal of A: rows that hold next to nothing are then followed softly."""
    D = jnp.zeros_like(found)
    factors = None
    if many:
        W, D = _weighted(composite(topology, S, J), G, found)
        factors = definite(W)
        Z = factors.solve(jnp.swapaxes(G, 0, 1))
    elif Z is None:
        Z = mass_solver(topology)(S, J, jnp.swapaxes(G, 0, 1))
    one = jnp.eye(G.shape[0], dtype=G.dtype)[..., None]
    A = product(G, Z)
    if damping:
        A = A + one * damping**2 * (A * one).max((0, 1))
    A = A + one * (1.0 - found)[:, None]
    return Chosen(G, Z, definite(A), found, D, factors, S, J, topology)


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
    return Speeds(G, G_plus, M, P, definite(Q))


def prepare(topology: Topology, S: Array, J: Array, G: Array) -> Rows | Speeds:
    """The factors of the system, with derivatives."""
    if not by_rows(G.shape[0], topology.nv):
        return prepare_speeds(topology, S, J, G)
    return prepare_rows(topology, S, J, G, mass_solver(topology)(S, J, jnp.swapaxes(G, 0, 1)))
