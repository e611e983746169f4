"""The notebook side: faces, client thread, processes and sockets, text in and out. No torch, no Jupyter."""
