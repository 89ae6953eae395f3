"""Rigid bodies: mass, centre of mass c and inertia I about it, in the axes of the body's frame.

    Sigma = 1/2 tr(I) 1 - I >= 0        second moment of mass: positive for every real body,

which says that the principal moments are not negative and obey the triangle inequality I1 + I2 >= I3. Equality (a thin
rod, a flat plate, a particle) is allowed.
"""

import math
from contextlib import suppress

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, as_axis, is_concrete

_SIX = np.array([[0, 3, 4], [3, 1, 5], [4, 5, 2]])  # where each entry of the matrix stands in (xx, yy, zz, xy, xz, yz)


class RigidBody(eqx.Module):
    """A rigid body; its frame may lie anywhere, markers and `com` are given in it.

    **Arguments:**

    - `name`: unique in the mechanism.
    - `mass`: kg.
    - `com`: centre of mass, m; by default the origin.
    - `inertia`: about the centre of mass in the body's axes, kg m2: a 3x3 matrix, three moments (xx, yy, zz), or six
        numbers (xx, yy, zz, xy, xz, yz), where xy is the entry of the matrix (minus the integral of x y dm).
    - `frame`: allows zero mass and inertia together; see `massless`.
    """

    name: str = eqx.field(static=True)
    mass: Array
    com: Array
    inertia: Array
    frame: bool = eqx.field(static=True)

    def __init__(self, name: str, mass, com=(0.0, 0.0, 0.0), inertia=None, *, frame: bool = False):
        self.name = name
        self.mass = as_number(f"body {name!r}", "mass", mass, ((),))
        self.com = as_number(f"body {name!r}", "com", com, ((3,),))
        self.inertia = _as_inertia(name, inertia)
        self.frame = frame
        check_body(self)


def rod(name: str, length, *, mass=None, density=None, radius=None) -> RigidBody:
    """A thin straight rod along +x from the origin of its frame to (length, 0, 0).

    Across the rod the inertia is m l^2 / 12. About its own axis it is m r^2 / 2, with `radius` length / 100 unless
    given; `density` (kg/m3) needs the radius. For a thick rod see `cylinder`.
    """
    what = f"rod {name!r}"
    _check_positive(what, length=length, mass=mass, density=density, radius=radius)
    if radius is None:
        if density is not None:
            raise MechanismError(f"{what}: a density needs a radius; give radius=... (m), or the mass instead")
        radius = length / 100
    elif is_concrete(radius, length) and radius > length / 2:
        raise MechanismError(f"{what}: radius = {radius:g} is not small against length = {length:g}; use cylinder")
    mass = _mass(what, mass, density, math.pi * radius * radius * length)
    across = mass * length * length / 12
    return RigidBody(name, mass, (length / 2, 0.0, 0.0), (mass * radius * radius / 2, across, across))


def box(name: str, size, *, mass=None, density=None) -> RigidBody:
    """A solid box with edges `size` (x, y, z in m) and its centre at the origin: Ixx = m (y^2 + z^2) / 12."""
    what = f"box {name!r}"
    edges = tuple(size) if np.iterable(size) else (size,)
    if len(edges) != 3:
        raise MechanismError(f"{what}: size has {len(edges)} numbers; give the three edges, for example (1, 0.2, 0.1)")
    x, y, z = edges
    _check_positive(what, **{"size[0]": x, "size[1]": y, "size[2]": z}, mass=mass, density=density)
    mass = _mass(what, mass, density, x * y * z)
    moments = (mass * (y * y + z * z) / 12, mass * (x * x + z * z) / 12, mass * (x * x + y * y) / 12)
    return RigidBody(name, mass, inertia=moments)


def cylinder(name: str, radius, length, axis="z", *, mass=None, density=None) -> RigidBody:
    """A solid cylinder, centre at the origin: m r^2 / 2 about `axis`, m (3 r^2 + l^2) / 12 across it."""
    what = f"cylinder {name!r}"
    _check_positive(what, radius=radius, length=length, mass=mass, density=density)
    mass = _mass(what, mass, density, math.pi * radius * radius * length)
    along, across = mass * radius * radius / 2, mass * (3 * radius * radius + length * length) / 12
    direction = as_axis(axis)
    if is_concrete(direction):
        direction = np.asarray(direction)
    projector = direction[:, None] * direction[None]
    return RigidBody(name, mass, inertia=across * (np.eye(3) - projector) + along * projector)


def sphere(name: str, radius, *, mass=None, density=None) -> RigidBody:
    """A solid sphere, centre at the origin: 2/5 m r^2."""
    what = f"sphere {name!r}"
    _check_positive(what, radius=radius, mass=mass, density=density)
    mass = _mass(what, mass, density, 4 / 3 * math.pi * radius * radius * radius)
    return RigidBody(name, mass, inertia=(0.4 * mass * radius * radius,) * 3)


def massless(name: str) -> RigidBody:
    """A frame without mass or inertia, to place between joints; some body further out must have mass."""
    return RigidBody(name, 0.0, inertia=(0.0, 0.0, 0.0), frame=True)


def check_body(body: RigidBody) -> None:
    """Refuses numbers that no body has, by name; numbers that are being traced pass."""
    what, mass, inertia = f"body {body.name!r}", body.mass, body.inertia
    check_value(what, "mass", mass, ())
    check_value(what, "com", body.com, (3,))
    check_value(what, "inertia", inertia, (3, 3))
    if is_concrete(mass) and (number := float(np.asarray(mass))) <= 0.0:
        if body.frame and number == 0.0 and not (is_concrete(inertia) and np.any(inertia)):
            return
        raise MechanismError(
            f"{what}: mass = {number:g} kg, but a mass must be positive (massless({body.name!r}) is a bare frame)"
        )
    if is_concrete(inertia):
        _check_inertia(what, np.asarray(inertia) + 0.0)  # whole numbers become floats


def check_value(what: str, field: str, value, shape: tuple[int, ...] | None = None) -> None:
    """Refuses another shape than `shape`, NaN and infinity, naming `what` and `field`."""
    if shape is not None and np.shape(value) != shape:
        raise MechanismError(
            f"{what}: {field} has shape {np.shape(value)} instead of {shape}; for many mechanisms at once use jax.vmap"
        )
    if is_concrete(value) and not np.isfinite(np.asarray(value)).all():
        raise MechanismError(f"{what}: {field} = {np.asarray(value).tolist()} is not finite; give real numbers")


def _check_inertia(what: str, inertia: np.ndarray) -> None:
    tolerance = max(1e-9, 32 * float(np.finfo(inertia.dtype).eps)) * float(np.abs(inertia).max())
    if np.abs(inertia - inertia.T).max() > tolerance:
        raise MechanismError(f"{what}: inertia = {inertia.tolist()} is not symmetric; make it equal to its transpose")
    smallest, middle, largest = np.linalg.eigvalsh(inertia).tolist()
    if smallest < -tolerance:
        fault = "is not positive definite"
    elif smallest + middle < largest - tolerance:
        fault = "breaks the triangle inequality (no moment is larger than the sum of the other two)"
    else:
        return
    raise MechanismError(
        f"{what}: inertia {fault}: its principal moments are {smallest:.6g}, {middle:.6g}, {largest:.6g} kg m2; "
        f"give it about the centre of mass in kg m2, with xy = -integral of x y dm"
    )


def as_number(what: str, field: str, value, shapes: tuple[tuple[int, ...], ...]) -> Array:
    """A floating leaf of one of the `shapes`, or a refusal that names `what` and `field`."""
    try:
        if any(isinstance(v, bool | str | None) for v in jax.tree.leaves(value, is_leaf=lambda v: v is None)):
            raise TypeError
        array = as_array(value)
    except (TypeError, ValueError):
        wanted = "a number" if shapes == ((),) else "numbers"
        raise MechanismError(f"{what}: {field} = {value!r} is not {wanted}") from None
    if array.shape not in shapes:
        wanted = " or ".join(str(s) for s in shapes)
        raise MechanismError(f"{what}: {field} has shape {array.shape}; it must be {wanted}")
    return array


def _as_inertia(name: str, value) -> Array:
    if value is None:
        raise MechanismError(
            f"body {name!r} has no inertia; give inertia=(Ixx, Iyy, Izz), or use rod, box, cylinder or sphere"
        )
    if not any(isinstance(v, jax.Array) for v in jax.tree.leaves(value)):
        with suppress(TypeError, ValueError):  # left to `as_number`, which names the culprit
            host = np.asarray(value)
            value = _full(host, np) if host.dtype.kind in "fiu" else value
    elif isinstance(value, tuple | list) and np.shape(value[0]) == () and len(value) == 3:
        value = [[moment if i == j else 0.0 for j in range(3)] for i, moment in enumerate(value)]  # zeros are seen
    return _full(as_number(f"body {name!r}", "inertia", value, ((3, 3), (3,), (6,))), jnp)


def _full(numbers, xp):
    """The 3x3 matrix of three moments or six numbers."""
    if numbers.shape == (3,):
        return xp.diag(numbers)
    return numbers[_SIX] if numbers.shape == (6,) else numbers


def _check_positive(what: str, **numbers) -> None:
    for field, value in numbers.items():
        if value is None:
            continue
        if isinstance(value, bool | str) or not hasattr(value, "__float__") or np.shape(value) != ():
            raise MechanismError(f"{what}: {field} = {value!r} is not a number")
        if is_concrete(value) and not 0.0 < float(value) < math.inf:
            raise MechanismError(f"{what}: {field} = {float(value):g}; it must be positive and finite")


def _mass(what: str, mass, density, volume):
    if (mass is None) == (density is None):
        raise MechanismError(f"{what}: give either mass=... (kg) or density=... (kg/m3), and not both")
    return density * volume if mass is None else mass
