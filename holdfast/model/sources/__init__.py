"""Where models come from: the cache, the package index, GGUF files, the Hugging Face hub."""
