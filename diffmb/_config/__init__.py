"""Studies in TOML: units, typed sections, and mechanisms by the names of the library's own classes."""
