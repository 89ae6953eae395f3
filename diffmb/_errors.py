"""What diffmb says when a description cannot be right."""


class MechanismError(ValueError):
    """The description of a mechanism is wrong; the message names the culprit, its value and the fix."""
