"""Studies: a folder with numbers, pictures and a state that survives interruption."""
