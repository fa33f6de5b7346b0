"""Results as one folder: packed for another machine, bundled, merged."""
