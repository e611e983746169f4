"""The engine process: the busy loop, its threads, and when it ends."""
