"""Hands plans to one or more workers."""
