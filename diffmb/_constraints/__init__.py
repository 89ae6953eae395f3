"""Constraints: relations between markers or joint coordinates that the motion must satisfy, one page per family."""
