"""How a running and a finished answer looks: as a widget, as a display that is replaced, or as plain text."""
