"""The knee as a contact of two polynomial profiles, femur on tibia.

    python experiments/13_knee_contact.py [config.toml]

Sol 1983, ch. 1, cites the knee of Wismans et al. (1980): a cam mechanism whose surfaces are sets of polynomials. Here
it is in the sagittal plane. The tibia (ground) has the profile y(x), the condyle of the femur the radius r(a) about its
origin, with a from straight down and smaller towards the back; `mb.CurveContact` keeps them in touch. The posterior
cruciate ligament is a rod, and flexion is driven: one degree of freedom. The coefficients are chosen, of the size of a
knee. Checked is an independent solution of the equations of contact, position by position,

    p + R c_f(a) = c_t(x)        R c_f'(a) parallel to c_t'(x)        |ligament| = length

by Newton's method on (p, a, x) in numpy with differences for slopes, and the change of the contact with a coefficient.
Femur and tibia roll and glide: the contact runs further on the femur than on the tibia. The figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe.
def plateau(x, coefficients):
    return jnp.stack([x, jnp.polyval(coefficients[::-1], x)])


def condyle(a, coefficients):
    return jnp.polyval(coefficients[::-1], a) * jnp.stack([jnp.sin(a), -jnp.cos(a)])


def bending(t, full):
    return full * t


def knee(tibia, femur, c):
    touch = mb.CurveContact(
        "contact", "world", "femur", (plateau, condyle), (tibia, femur), (c["tibia_span"], c["femur_span"])
    )
    ends = mb.Marker("world", (*c["tibia_pcl"], 0.0)), mb.Marker("femur", (*c["femur_pcl"], 0.0))
    mech = mb.Mechanism(
        [mb.RigidBody("femur", 1.0, inertia=(1e-3,) * 3)],
        [mb.Planar("knee", "world", "femur")],
        constraints=[touch, mb.Distance("PCL", *ends, c["pcl"])],
        drives=[mb.PositionDrive("flexion", ("knee", 2), bending, np.radians(c["flexion"]))],
    )
    return touch, mech


def motion(femur, c):
    """Where they touch, (x on the tibia, a on the femur), over the flexion."""
    touch, mech = knee(jnp.array(c["tibia"]), femur, c)
    model = mb.compile(mech)
    guess = jnp.array([0.0, c["femur"][0], 0.0])
    run = mb.simulate_kinematics(model, guess, jnp.linspace(0.0, 1.0, c["positions"]), throw=False)
    place = run["femur"].pose
    return jax.vmap(lambda X: touch.contact(X, touch.params))(place), (model, run)


# 2. Independent: the equations of contact in numpy, by Newton's method with differences.
def by_hand(angles, femur, c):
    tibia, femur = np.array(c["tibia"])[::-1], np.array(femur)[::-1]
    P, Q = np.array(c["tibia_pcl"]), np.array(c["femur_pcl"])

    def equations(y, angle):
        p, a, x = y[:2], y[2], y[3]
        R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        e, de = np.array([np.sin(a), -np.cos(a)]), np.array([np.cos(a), np.sin(a)])
        r, dr = np.polyval(femur, a), np.polyval(np.polyder(femur), a)
        along, slope = R @ (dr * e + r * de), np.polyval(np.polyder(tibia), x)
        meet = p + R @ (r * e) - np.array([x, np.polyval(tibia, x)])
        return np.array([*meet, along[1] - slope * along[0], np.linalg.norm(p + R @ Q - P) - c["pcl"]])

    y, found = np.array([0.0, femur[-1], 0.0, 0.0]), []
    for angle in angles:
        for _ in range(8):
            columns = [(equations(y + d, angle) - equations(y - d, angle)) / 2e-7 for d in 1e-7 * np.eye(4)]
            y = y - np.linalg.solve(np.stack(columns, 1), equations(y, angle))
        found.append(y)
    return np.array(found)


def main(c):
    femur, h = jnp.array(c["femur"]), c["step"]
    ahead = jnp.zeros(len(femur)).at[1].set(1.0)
    touch, change, (model, run) = jax.jit(lambda f: jax.jvp(lambda f: motion(f, c), (f,), (ahead,), has_aux=True))(
        femur
    )
    assert bool(run.ok.all()), "the knee does not bend so far"
    print(mb.mobility(model, run.q[0]))
    angles = np.asarray(run.q[:, 2])
    exact = by_hand(angles, femur, c)
    off = np.abs(run.q[:, :2] - exact[:, :2]).max(), np.abs(touch[:, ::-1] - exact[:, 2:]).max()
    print(f"against Newton's method by hand: position {off[0]:.1e} m, contact {off[1]:.1e}")
    assert max(off) < 1e-9

    # 3. Rolling and gliding: how far the contact has come on either side.
    curve = lambda fun, s, k: np.asarray(jax.vmap(fun, (0, None))(s, k))
    paths = curve(plateau, touch[:, 0], jnp.array(c["tibia"])), curve(condyle, touch[:, 1], femur)
    on_tibia, on_femur = (np.append(0.0, np.cumsum(np.linalg.norm(np.diff(p, axis=0), axis=1))) for p in paths)
    back = 1e3 * float(touch[-1, 0] - touch[0, 0])
    print(f"contact moves by {back:.2f} mm along the tibia", end="; ")
    print(f"its way there {1e3 * on_tibia[-1]:.1f} mm, on the femur {1e3 * on_femur[-1]:.1f} mm")
    assert on_femur[-1] > on_tibia[-1]

    # 4. A coefficient of the condyle.
    moved = [by_hand(angles, femur + d * ahead, c)[:, :1:-1] for d in (h, -h)]
    difference = (moved[0] - moved[1]) / (2 * h)
    apart = float(np.abs(change - difference).max() / np.abs(change).max())
    print(f"d contact / d femur[1]: up to {np.abs(change).max():.4f}, differences off by {apart:.1e} of it")
    assert apart < 1e-5
    drawing = lambda axes: plot(axes, angles, np.asarray(run.q), on_tibia, on_femur, np.asarray(touch), c)
    mb.draw("out/13_knee_contact.png", drawing, columns=3, size=(14, 4.5))


def plot(axes, angles, q, on_tibia, on_femur, touch, c):
    shape = lambda fun, span, k: 1e3 * np.asarray(jax.vmap(fun, (0, None))(jnp.linspace(*span, 100), jnp.array(k)))
    axes[0].plot(*shape(plateau, c["tibia_span"], c["tibia"]).T, "k", linewidth=2)
    bone, flexion = shape(condyle, c["femur_span"], c["femur"]), np.degrees(angles)
    for k, color in zip(np.linspace(0, len(angles) - 1, 3).astype(int), ("C0", "C1", "C2")):
        turn = np.array([[np.cos(q[k, 2]), -np.sin(q[k, 2])], [np.sin(q[k, 2]), np.cos(q[k, 2])]])
        axes[0].plot(*(bone @ turn.T + 1e3 * q[k, :2]).T, color, label=f"{abs(flexion[k]):.0f} deg")
        ligament = 1e3 * np.array([c["tibia_pcl"], turn @ np.array(c["femur_pcl"]) + q[k, :2]])
        axes[0].plot(*ligament.T, color, marker="o", linestyle="--")
    axes[0].set(xlabel="mm, to the front", ylabel="mm, up", title="condyle, tibia, PCL (dashed)", aspect="equal")
    axes[1].plot(flexion, 1e3 * on_tibia, label="on the tibia")
    axes[1].plot(flexion, 1e3 * on_femur, label="on the femur")
    axes[1].set(xlabel="flexion, deg", ylabel="mm", title="way of the contact: it rolls and glides")
    axes[2].plot(flexion, 1e3 * touch[:, 0], label="contact on the tibia, mm")
    axes[2].plot(flexion, np.degrees(touch[:, 1]), label="on the femur, deg")
    axes[2].set(xlabel="flexion, deg", title="place of the contact")
    for axis in axes:
        axis.legend()


if __name__ == "__main__":
    main(mb.settings(__file__))
