"""What a decoder does between its matrix products and its attention, in Triton. Imported only where it runs."""
