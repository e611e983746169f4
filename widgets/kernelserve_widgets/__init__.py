"""kernelserve in a notebook: magics, stream views, dashboard and timeline. Loaded by `%load_ext kernelserve`."""
