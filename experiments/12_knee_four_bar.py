"""The knee as a four-bar: femur and tibia, and the cruciate ligaments as two crossed bars.

    python experiments/12_knee_four_bar.py [config.toml]

Sol 1983, ch. 1, names the four-bar beside the pin joint as a model of the knee. He gives no numbers; those in
`configs/` are chosen, of the size that anatomy reports (ligaments of 30 mm, attachments 27 and 12 mm apart). The tibia
is the ground, the femur moves in the plane, each ligament is a massless rod (`mb.Distance`), and flexion is driven.
Checked are

- the position, against the closed form: two circles that intersect;
- the instant centre from the femur's twist, against the crossing of the two ligaments (Aronhold and Kennedy);
- the centrodes, its paths on the tibia and on the femur, which roll on each other: equal lengths;
- what a longer ligament does to the instant centre, against differences of the closed form.

The instant centre moves backwards on the tibia in flexion, as surgeons know it. The figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe. Flexion turns the femur backwards: positive about z, with x to the front and y up.
def bending(t, full):
    return full * t


def knee(acl, pcl, c):
    point = lambda body, place: mb.Marker(body, (*c[place], 0.0))
    return mb.Mechanism(
        [mb.RigidBody("femur", 1.0, inertia=(1e-3,) * 3)],
        [mb.Planar("knee", "world", "femur")],
        constraints=[
            mb.Distance("ACL", point("world", "tibia_acl"), point("femur", "femur_acl"), acl),
            mb.Distance("PCL", point("world", "tibia_pcl"), point("femur", "femur_pcl"), pcl),
        ],
        drives=[mb.PositionDrive("flexion", ("knee", 2), bending, np.radians(c["flexion"]))],
    )


def motion(acl, pcl, c):
    """Positions, and the instant centre: where the femur's velocity vanishes, p + (-v_y, v_x) / w."""
    model = mb.compile(knee(acl, pcl, c))
    run = mb.simulate_kinematics(
        model, jnp.array([*c["guess"], 0.0]), jnp.linspace(0.0, 1.0, c["positions"]), throw=False
    )
    centre = run.q[:, :2] + jnp.stack([-run.v[:, 1], run.v[:, 0]], 1) / run.v[:, 2:]
    return centre, (model, run)


# 2. The closed form: the femoral end D of the ACL lies on a circle about A, and on one about B moved by the femur.
def by_hand(angle, acl, pcl, c):
    A, B, d, e = (np.array(c[k]) for k in ("tibia_acl", "tibia_pcl", "femur_acl", "femur_pcl"))
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    shifted = B - turn @ (e - d)
    between = shifted - A
    apart = np.linalg.norm(between)
    along = (acl**2 - pcl**2 + apart**2) / (2 * apart)
    up = np.array([-between[1], between[0]]) / apart
    D = A + along / apart * between - np.sqrt(acl**2 - along**2) * up  # above the tibia
    C = D + turn @ (e - d)
    a, b = D - A, C - B  # the ligaments cross where A + x a = B + y b
    x = np.linalg.solve(np.stack([a, -b], 1), B - A)[0]
    return D - turn @ d, A + x * a, D, C


def main(c):
    acl, pcl, h = c["acl"], c["pcl"], c["step"]
    slopes = jax.jit(lambda acl: jax.jvp(lambda acl: motion(acl, pcl, c), (acl,), (1.0,), has_aux=True))
    centre, change, (model, run) = slopes(acl)
    assert bool(run.ok.all()), "the knee does not bend so far"
    print(mb.mobility(model, run.q[0]))
    angles = np.asarray(run.q[:, 2])
    place, cross, D, C = (np.array(x) for x in zip(*(by_hand(a, acl, pcl, c) for a in angles)))
    off = np.abs(run.q[:, :2] - place).max(), np.abs(centre - cross).max()
    print(f"against the closed form: position {off[0]:.1e} m, instant centre {off[1]:.1e} m")
    assert max(off) < 1e-12

    # 3. Centrodes roll on each other: they are equally long.
    turn = lambda a: np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]])
    moving = np.array([turn(a) @ (x - p) for a, x, p in zip(angles, cross, place)])
    length = lambda path: np.linalg.norm(np.diff(path, axis=0), axis=1).sum()
    print(f"centrodes: {1e3 * length(cross):.4f} mm on the tibia, {1e3 * length(moving):.4f} mm on the femur")
    assert np.isclose(length(cross), length(moving), rtol=1e-3)
    back = 1e3 * (cross[-1] - cross[0])
    print(f"in {c['flexion']:.0f} deg of flexion the instant centre moves by ({back[0]:.2f}, {back[1]:.2f}) mm")
    assert back[0] < 0.0

    # 4. A longer anterior ligament.
    shifted = [np.array([by_hand(a, acl + d, pcl, c)[1] for a in angles]) for d in (h, -h)]
    difference = (shifted[0] - shifted[1]) / (2 * h)
    print(
        f"d centre / d ACL: up to {np.abs(change).max():.4f}, off by {np.abs(change - difference).max():.1e}"
    )
    assert np.allclose(change, difference, atol=1e-6 * float(np.abs(change).max()))
    mb.draw(
        "out/12_knee_four_bar.png",
        lambda axes: plot(axes, angles, cross, moving + place[0], D, C, change, c),
        columns=3,
        size=(14, 4.5),
    )


def plot(axes, angles, cross, moving, D, C, change, c):
    A, B = 1e3 * np.array(c["tibia_acl"]), 1e3 * np.array(c["tibia_pcl"])
    for k, color in zip(np.linspace(0, len(angles) - 1, 4).astype(int), ("C0", "C1", "C2", "C3")):
        d, e = 1e3 * D[k], 1e3 * C[k]
        axes[0].plot(*np.array([A, d, e, B]).T, color, marker="o", label=f"{abs(np.degrees(angles[k])):.0f} deg")
        axes[0].plot(*(1e3 * cross[k]), color, marker="x", markersize=9)
    axes[0].plot(*np.array([A, B]).T, "k", linewidth=3)
    axes[0].set(xlabel="mm, to the front", ylabel="mm, up", title="ligaments, femur, tibia (black)", aspect="equal")
    axes[1].plot(*(1e3 * cross.T), "C0", label="on the tibia")
    axes[1].plot(*(1e3 * moving.T), "C1", label="on the femur, in extension")
    axes[1].set(xlabel="mm", ylabel="mm", title="centrodes", aspect="equal")
    axes[2].plot(np.degrees(angles), np.asarray(change), label=["to the front", "up"])
    axes[2].set(xlabel="flexion, deg", ylabel="mm per mm", title="instant centre by the length of the ACL")
    axes[0].legend(loc="center right")
    axes[1].legend(loc="lower left")
    axes[2].legend()


if __name__ == "__main__":
    main(mb.settings(__file__))
