"""Runs a plan on a device: batch state, forward pass, sampling, memory."""
