"""Shape aliases, and the glossary: what each symbol and each word means everywhere in diffmb.

    qd = N(q) v                                               speeds to rates of coordinates
    M(q) vd + c(t, q, v) + G(t, q)^T lam = tau                motion; tau holds the loads of connections (t, q, v, z, u)
    zd = zdot(t, q, v, z, u)                                  states of connections
    phi(t, q) = 0        G v = nu        G vd = gamma         rows of constraint and their time derivatives

    t       time, s
    q       coordinates (nq,): angles in rad, lengths in m, unit quaternions wxyz
    v       speeds (nv,): rates of the joints' motions; qd = v unless q lives on a manifold
    vd      accelerations (nv,): the time derivative of v
    tau     generalised loads (nv,): the power of tau is tau . v
    M       mass matrix (nv, nv): kinetic energy = v . M v / 2 when no joint moves by time alone
    c       bias (nv,): the tau that keeps vd = 0; Coriolis, centrifugal and gyroscopic terms, gravity, given wrenches
    N       map from speeds to rates of coordinates (nq, nv)
    phi     rows of position level (holonomic), zero on the manifold
    G       Jacobian of all rows (nc, nv)
    nu      what G v must be: minus the explicit time derivative, or the prescribed rate
    gamma   what G vd must be: every velocity and time term (nc,)
    z, u    states (nz,) and inputs (nu,) of the connections: model.states(name), model.input(name) say which
    on      switches: 1 or 0 for each element and connection, in the order of model.switches
    lam     multipliers (nc,): -G^T lam is the load of the constraints, -lam that of a drive
    X_AB    pose of frame B in frame A; X_AB @ X_BC == X_AC;  x_A = R_AB x_B + p_AB
    R_AB    rotation matrix: components in B to components in A
    p_AB_W  vector from the origin of A to the origin of B, components in W
    V, A    twist and its rate (6,): angular part first, then linear
    F       wrench (6,): moment first, then force
    S       motion subspace of a joint (6, nv of the joint): V = S v + s
    J       Jacobian (6, nv): twist = J v + a part by time alone

    body        something with mass; "world" is the ground, body 0
    marker      a frame fixed to a body: body plus an offset pose
    joint       a relation between two markers that leaves nv ways to move; its pose is a function of (q, t)
    tree        the bodies and the joints that carry them, each body with one inboard joint
    cut joint   a joint left out of the tree because it closes a loop: its 6 - nv rows are constraints
    constraint  rows between two markers; a coupling: rows between joint coordinates
    drive       a coordinate, or the value of a constraint, prescribed as a function of time
    element     a cut joint, constraint, coupling or drive: anything that has rows
    connection  a load that follows from the motion, its own states and inputs: springs, motors; it has no rows
    level       0 position, 1 velocity, 2 acceleration: where a row begins to exist
    redundant   a row that follows from the others here; attitude: a configuration, regular or singular by rank
    rheonomic   depending on time explicitly
    model       a compiled mechanism: static topology and stacked numbers

Inside the package arrays carry component axes first and any batch axes behind. Public functions have no batch axis:
`jax.vmap` is the batch interface. A name in an alias (`nq`, `nv`) stands for one length within one call.
"""

from jax import Array
from jaxtyping import Float

Scalar = Float[Array, ""]
Coordinates = Float[Array, "nq"]
Speeds = Float[Array, "nv"]
Accelerations = Float[Array, "nv"]
Loads = Float[Array, "nv"]
MassMatrix = Float[Array, "nv nv"]

Vector = Float[Array, "3"]
Twist = Float[Array, "6"]
Wrench = Float[Array, "6"]
Jacobian = Float[Array, "6 nv"]
