"""One script for each peer, run by the peer's own Python: nothing here imports kernelserve."""
