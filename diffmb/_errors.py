"""What diffmb says when a description, a study or a file cannot be right."""

from enum import IntEnum


class MechanismError(ValueError):
    """The description of a mechanism is wrong; the message names the culprit, its value and the fix."""


class Exit(IntEnum):
    """How a command ends: the exit code of the program."""

    DONE = 0
    BAD_INPUT = 2
    SOLVE_FAILED = 3
    PARTIAL = 4
    FILES = 5
    INTERRUPTED = 130


class StudyError(Exception):
    """A study cannot go on; `code` says of what kind the fault is, the message what it is and what to do."""

    def __init__(self, message: str, code: Exit = Exit.BAD_INPUT):
        super().__init__(message)
        self.code = code
