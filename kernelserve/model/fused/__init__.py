"""The layers of a decoder in our own kernels, where a model is built in a way that these know."""
