"""A static web site of many campaigns."""
