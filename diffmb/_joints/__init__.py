"""Joints: the relative pose of two markers as a function of coordinates and time, one page per kind."""
