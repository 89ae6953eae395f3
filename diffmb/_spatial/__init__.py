"""Pose, twist, wrench, inertia: the algebra under everything else."""
