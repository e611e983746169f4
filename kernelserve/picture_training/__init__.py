"""Trains the eyes of the embedded model that sees, on pictures that are painted here.

Not used by the engine: `python -m kernelserve.picture_training` makes and measures kernelserve/model/smollm2_vision.
"""
