"""Programs on small arrays as a straight line of arithmetic on numbers: one kernel of XLA, or a table for a machine."""
