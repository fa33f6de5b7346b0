"""The functions that ``import bench`` offers to a notebook or a script."""
