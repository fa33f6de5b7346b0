"""The papers that ``bench reproduce`` repeats: a TOML file each, with an entry for every table and figure."""
