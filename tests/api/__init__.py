"""Tests of what `import bench` offers."""
