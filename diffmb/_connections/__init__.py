"""Connections: loads between markers or on joint coordinates that are no constraints, one page per family."""
