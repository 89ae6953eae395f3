"""A vehicle on double wishbones in front and single arms at the rear: it settles, and drives over a bump.

    python experiments/14_vehicle.py [config.toml]

Attia 2006, section 2.5: chassis, double A-arms with knuckles in front (two loops), single A-arms at the rear, four
wheels on radial springs and dampers: 13 bodies, 16 degrees of freedom. Masses, springs and tyres are his; he draws the
geometry without numbers, so it is chosen (config). His front suspensions have two freedoms each, so the wheels steer by
themselves, and stay straight because the line of the balls leans in. Radial tyres have no friction: the vehicle coasts.
With his dampers on these levers (motion ratio 0.55) the chassis overshoots once, by a millimetre.

Checked: the count of freedoms; released from rest it settles (his figures 2.5 and 2.6) where `mb.equilibrium` says; the
energy balance, stored + heat = const, in both runs; a stated number of implicit steps; and over a bump under the right
wheels the gradient of the peak acceleration by spring and damper, against differences. The figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe. Every body's frame is parallel to the chassis as built; points in the config are from its centre.
def corner(config, end, side):
    """Bodies, joints and spring of one corner: `end` is "front" or "rear", `side` +1 left or -1 right."""
    at = lambda key: np.array(config[key]) * (1, side, 1)
    name = f"{'left' if side > 0 else 'right'}_{end}"
    wheel, mass = at(f"{end}_wheel"), config[f"{end}_wheel_mass"]
    bodies, joints = [mb.RigidBody(f"{name}_wheel", mass, (0, 0, 0), config["wheel_inertia"])], []

    def arm(kind, pivot, tip):
        own, middle = f"{name}_{kind}", (pivot + tip) / 2
        bodies.append(mb.RigidBody(own, config["arm_mass"], (0, 0, 0), config["arm_inertia"]))
        here = mb.Marker(own, pivot - middle)
        joints.append(mb.Revolute(f"{own}_pivot", mb.Marker("chassis", pivot), here, axis="x"))
        return lambda point: mb.Marker(own, point - middle)

    if end == "rear":
        carrier = on_arm = arm("arm", at("rear_pivot"), wheel)
    else:
        on_arm = arm("lower", at("lower_pivot"), at("lower_ball"))
        on_upper = arm("upper", at("upper_pivot"), at("upper_ball"))
        bodies.append(mb.RigidBody(f"{name}_knuckle", config["knuckle_mass"], (0, 0, 0), config["knuckle_inertia"]))
        middle = (at("lower_ball") + at("upper_ball")) / 2
        carrier = lambda point: mb.Marker(f"{name}_knuckle", point - middle)
        for kind, arm_of in (("lower", on_arm), ("upper", on_upper)):
            ball = at(f"{kind}_ball")
            joints.append(mb.Spherical(f"{name}_{kind}_ball", arm_of(ball), carrier(ball), cut=kind == "upper"))
    joints.append(mb.Revolute(f"{name}_hub", carrier(wheel), f"{name}_wheel", axis="y"))
    p = {"k": config["k"], "c": config["c"], "length": config[f"{end}_length"], "unit": config["unit"]}
    ends = mb.Marker("chassis", at(f"{end}_mount")), on_arm(at(f"{end}_seat"))
    spring = mb.Connection(f"{name}_spring", *ends, spring_load, p, strain=span, energy=spring_energy, **METER)
    return bodies, joints, [spring, tyre(config, name, side)]


# 2. Springs and tyres. Each has a state of its own, the heat that its damper made, so that the energy balance is as
#    good as the steps. The tyre is Attia's radial spring and damper (`mb.RadialTyre`) on a road that is not flat.
def span(t, rel, p):
    return jnp.linalg.norm(rel.translation)


def spring_load(t, e, ed, z, u, p):
    return -(p["k"] * (e - p["length"]) + p["c"] * ed)


def spring_energy(t, e, z, p):
    return 0.5 * p["k"] * (e[0] - p["length"]) ** 2


def radial(p):
    return mb.RadialTyre("tyre", "world", "wheel", *p["tyre"])


def road(x, p):
    phase = jnp.clip((x - p["start"]) / p["length"], 0.0, 1.0)
    return p["height"] * jnp.sin(jnp.pi * phase) ** 4


def clearance(t, rel, p):
    """From the wheel's centre to the road, in the wheel's plane."""
    lifted = rel.translation.at[2].add(-road(rel.translation[0], p))
    return radial(p).strain(t, mb.Pose(rel.rotation, lifted))


def tyre_load(t, e, ed, z, u, p):
    return radial(p).load(t, e, ed, z, u)


def tyre_energy(t, e, z, p):
    return radial(p).energy(t, e, z)


def heat(t, e, ed, z, u, p):
    return radial(p).dissipation(t, e, ed, z, u) if "tyre" in p else p["c"] * ed[0] ** 2


def heat_rate(t, e, ed, z, u, p):
    return heat(t, e, ed, z, u, p) / p["unit"]


METER = {"states": 1, "state_rate": heat_rate, "dissipation": heat}


def tyre(config, name, side):
    p = {key: config[f"bump_{key}"] for key in ("height", "start", "length")} | {"unit": config["unit"]}
    p |= {"tyre": [config[key] for key in ("radius", "tyre_k", "tyre_c", "ramp")], "height": p["height"] * (side < 0)}
    ends = "world", f"{name}_wheel"
    return mb.Connection(f"{name}_tyre", *ends, tyre_load, p, strain=clearance, energy=tyre_energy, **METER)


def vehicle(config):
    corners = [corner(config, end, side) for end in ("front", "rear") for side in (1, -1)]
    bodies, joints, loads = ([x for c in corners for x in c[k]] for k in range(3))
    chassis = mb.RigidBody("chassis", config["chassis_mass"], (0, 0, 0), config["chassis_inertia"])
    built = mb.Marker("world", (0, 0, config["height"] - config["press"]))
    joints, gravity = [mb.Free("free", built, "chassis"), *joints], (0, 0, -config["gravity"])
    return mb.Mechanism([chassis, *bodies], joints, connections=loads, gravity=gravity)


# 3. How it goes on from q with a forward speed: the smooth peak of the vertical acceleration, and the motion.
def go(config, numbers, q, speed, ts):
    model = mb.compile(vehicle(config | numbers))
    v = jnp.zeros(model.nv).at[model.speeds("free").start + 3].set(speed)
    start = mb.assemble(model, q, v, throw=False)
    tolerance = mb.Tolerance(config["rtol"])
    traj = mb.simulate(model, start, ts, solver=mb.implicit(), controller=tolerance, throw=False)
    lift = traj["chassis"].acceleration[:, 5]
    return jnp.linalg.norm(lift, ord=config["order"]), (traj, lift, traj.energy(), config["unit"] * traj.z.sum(1))


def report(config, title, found):
    """Steps and energy balance of a run: what is stored and what became heat stay together."""
    traj, _, stored, heat = found
    left = float(jnp.abs(stored + heat - stored[0]).max() / heat[-1])
    steps, gap = int(traj.stats.steps), float(traj.stats.constraint_error)
    print(f"{title}: {steps} steps ({int(traj.stats.rejected)} rejected), loops open by {gap:.0e} m; "
          f"{float(heat[-1]):.1f} J of heat, balance to {left:.1e}")  # fmt: skip
    assert traj.result == mb.RESULTS.successful and steps < config["most_steps"], "more steps than stated"
    assert left < config["balance"], "energy balance"


def main(config):
    model = mb.compile(vehicle(config))
    as_built = model.neutral()
    free = mb.mobility(model, as_built)
    print(f"{model.nq} coordinates, {model.nc} rows, {int(free.dof)} degrees of freedom")
    assert free.dof == 16, "Attia's vehicle has 16 degrees of freedom"

    # 4. Released: it settles where the equilibrium is. Places, headings, steering and the wheels' turns are indifferent
    #    or undamped (radial tyres hold nothing else), so attitude and suspension are compared.
    run = jax.jit(lambda q, speed, ts, numbers: go(config, numbers, q, speed, ts))
    given = {key: jnp.asarray(config[key]) for key in ("k", "c")}
    rest = mb.equilibrium(model)
    _, settled = run(as_built, 0.0, jnp.linspace(0.0, config["t_settle"], config["frames"]), given)
    report(config, "settling", settled)
    arms = [name for name in model.inboard if name.endswith("pivot")]
    posed = [2, 4, 5] + [model.coordinates(name).start for name in arms]
    gap = np.abs(np.asarray(settled[0].q[-1] - rest.q))[posed].max()
    pitch = np.degrees(2 * float(rest.q[5]))
    print(f"equilibrium: chassis {1e3 * float(rest.q[2]):.4f} mm, pitch {pitch:.4f} degrees, "
          f"{int(rest.indifferent)} motions indifferent; settled to {gap:.1e} m or rad")  # fmt: skip
    assert rest.stable and gap < config["settled"], "it does not settle where the equilibrium is"

    # 5. Over the bump, from there; and the derivative of the peak acceleration by spring and damper, start kept.
    ts = jnp.linspace(0.0, config["t_bump"], config["frames"])
    peak, ridden = run(rest.q, config["speed"], ts, given)
    report(config, "over the bump", ridden)
    print(f"peak acceleration {float(jnp.abs(ridden[1]).max()):.4f} m/s2, smooth {float(peak):.4f}")
    chosen = {key: given[key] for key in config["numbers"]}
    ride = lambda numbers: go(config, numbers, rest.q, config["speed"], ts)[0]
    slopes = jax.jit(jax.jacfwd(ride))(chosen) if chosen else {}
    for key in chosen:
        side = lambda h, key=key: float(run(rest.q, config["speed"], ts, given | {key: given[key] * (1 + h)})[0])
        h = config["step"]
        difference = (side(h) - side(-h)) / (2 * h * config[key])
        print(f"d peak / d {key} = {float(slopes[key]):.8e}, by differences {difference:.8e}")
        assert abs(slopes[key] / difference - 1) < config["agreement"], "derivative and differences"
    draw = lambda axes: plot(axes, config, settled, ridden, rest)
    mb.draw("out/14_vehicle.png", draw, rows=2, columns=3, size=(15, 8))


def plot(axes, config, settled, ridden, rest):
    traj, lift, stored, heat = settled
    axes[0].plot(traj.ts, 1e3 * traj.q[:, 2], label="chassis")
    axes[0].axhline(1e3 * float(rest.q[2]), color="C3", linestyle="--", label="equilibrium")
    axes[0].set(ylabel="height, mm", title="released: vertical displacement (Attia, figure 2.5)")
    axes[1].plot(traj.ts, lift, label="chassis")
    axes[1].set(ylabel="m/s2", title="vertical acceleration (figure 2.6)")
    axes[2].plot(traj.ts, stored - stored[0], label="stored")
    axes[2].plot(traj.ts, heat, "C3", label="heat")
    axes[2].plot(traj.ts, stored - stored[0] + heat, "k", label="sum")
    axes[2].set(ylabel="J", title="energy")
    traj, lift, stored, heat = ridden
    axes[3].plot(traj.ts, 1e3 * (traj.q[:, 2] - traj.q[0, 2]), "k", label="chassis")
    heights = jax.jit(jax.vmap(lambda q: mb.kinematics(traj.model, q).pose.translation[:, 2]))(traj.q)
    for name, z in zip(traj.model.topology.bodies, 1e3 * heights.T, strict=True):
        if name.endswith("wheel"):
            axes[3].plot(traj.ts, z - z[0], label=name.replace("_", " "))
    title = f"over a bump of {1e3 * config['bump_height']:.0f} mm at {config['speed']:g} m/s, right side"
    axes[3].set(ylabel="height, mm", title=title)
    axes[4].plot(traj.ts, lift, label="chassis")
    axes[4].set(ylabel="m/s2", title="vertical acceleration")
    axes[5].plot(traj.ts, np.degrees(2 * traj.q[:, 4]), label="roll")
    axes[5].plot(traj.ts, np.degrees(2 * traj.q[:, 5]), label="pitch")
    axes[5].set(ylabel="degrees", title="attitude of the chassis")
    for axis in axes:
        axis.set_xlabel("t, s")
        axis.legend(fontsize=8)


if __name__ == "__main__":
    main(mb.settings(__file__))
