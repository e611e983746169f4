"""Scheduling and KV-cache bookkeeping. Pure Python: no torch, no I/O, no clock reads."""
