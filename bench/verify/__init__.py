"""Whether records can be believed; campaigns in one file, and taking such files over once verified."""
