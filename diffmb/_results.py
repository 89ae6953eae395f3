"""What can go wrong while a mechanism moves; each member is its own advice."""

import equinox as eqx


class RESULTS(eqx.Enumeration):
    """How a simulation ended. `traj.result == mb.RESULTS.successful`; `mb.RESULTS[traj.result]` is the message."""

    successful = ""
    event = "the simulation was stopped by an event"
    nonfinite = (
        "the state or its rate is not finite: a load, drive or input returns nan or infinity, or the motion runs away"
    )
    max_steps = (
        "the step limit was reached before the last time: the system may be stiff (solver=mb.implicit()), the "
        "tolerance too tight, or the time long (raise max_steps)"
    )
    max_stored = (
        "more accepted steps than are kept for derivatives and for dense=True; raise adjoint=mb.StoredSteps(...), or "
        "ask for less accuracy"
    )
    inconsistent = "the start does not satisfy the constraints; make it with mb.assemble"
    step_too_small = (
        "the steps shrank to nothing: there is a discontinuity or a singularity that no step length resolves; tell the "
        "simulation about a switch by an event, or loosen the tolerance"
    )
    fork = (
        "the run got to a singular attitude, where motions fork, and cannot tell how to go on; ask for other times "
        "than the one at which it gets there, or loosen the tolerance, so that steps pass over it"
    )
    max_events = (
        "more events than max_events: they may follow each other ever faster (a ball that comes to rest), then stop or "
        "lock the motion at small speed by another event; or raise max_events"
    )
    newton = (
        "Newton's method for the implicit stages did not converge; take smaller steps or a smoother law"
    )
    drift = (
        "the constraints cannot be satisfied any more: the mechanism has come to an attitude where it does not close, "
        "or where rows contradict each other (without projection: they have opened by more than 0.1 m or rad)"
    )
