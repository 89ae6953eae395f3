"""Programs on small arrays as one straight line of arithmetic on numbers, which XLA compiles to one kernel."""
