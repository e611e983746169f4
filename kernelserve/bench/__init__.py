"""`python -m kernelserve.bench`: what the engine costs and how fast it serves, as JSON lines."""
