"""Checks that need a GPU, and the script that makes them all in one call."""
