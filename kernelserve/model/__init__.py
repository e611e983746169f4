"""Loads transformers models and runs them on the paged KV cache."""
