"""IPython's defaults in the image: our magics load when first used, and an engine fits into 2 GB."""

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
c.KernelServeMagics.engine_options = {
    "kv_cache_memory_bytes": 192 * 2**20,  # 4,096 tokens of the embedded model
    "max_model_len": 2048,
    "max_num_seqs": 8,
}
