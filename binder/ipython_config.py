"""IPython's defaults in the image: our magics load when first used."""

c = get_config()  # noqa: F821

c.MagicsManager.lazy_magics = {
    "abort": "kernelserve",
    "chat": "kernelserve",
    "dashboard": "kernelserve",
    "engine": "kernelserve",
    "generate": "kernelserve",
    "last": "kernelserve",
    "requests": "kernelserve",
    "serve": "kernelserve",
    "timeline": "kernelserve",
}
