"""Files: results of simulations."""
