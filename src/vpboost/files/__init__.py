"""Models and checkpoints on disk: safetensors arrays and strictly checked JSON in one file. No pickle, no code."""
