"""The live dashboard: what the engine does, as numbers, pictures and widgets."""
