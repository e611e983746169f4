"""Drop zones: pictures dropped, pasted or chosen, and kept beside the notebook under the hash of their content."""
