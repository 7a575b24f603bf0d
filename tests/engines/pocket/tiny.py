"""A tiny pocket-tts with random weights, in the files that the package itself reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from tokenizers import Tokenizer, decoders, models

from tts_plugins.types import AudioChunk

ALWAYS, NEVER = -1e9, 1e9
"""Thresholds at which a sentence ends: as soon as it may, or only when it takes too long."""

SILENT = "\u0394"
"""A letter that the model's configuration deletes."""


def tiny(
    folder: Path, *, seed: int = 0, layers: int = 2, flow: str = "lsd", **settings: object
) -> Path:
    """Write a configuration, its tokenizer and its weights; returns the configuration's path.

    A token is a character, so a piece of text has 49 of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"<unk>": 0} | {chr(32 + i): i + 1 for i in range(95)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "default_eos_threshold": ALWAYS,
        "replace_characters": {SILENT: ""},
        "flow_lm": {
            "insert_bos_before_voice": True,
            "dtype": "float32",
            "flow": {"depth": 1, "dim": 16, "type": flow},
            "transformer": {
                "d_model": 32,
                "hidden_scale": 2,
                "max_period": 10000,
                "num_heads": 2,
                "num_layers": layers,
            },
            "lookup_table": {
                "dim": 32,
                "n_bins": len(vocabulary),
                "tokenizer": "tokenizers",
                "tokenizer_path": str(folder / "tokenizer.json"),
            },
        },
        "mimi": {
            "dtype": "float32",
            "sample_rate": 24000,
            "inner_dim": 8,
            "outer_dim": 16,
            "channels": 1,
            "frame_rate": 12.5,
            "seanet": {
                "dimension": 16,
                "channels": 1,
                "n_filters": 4,
                "n_residual_layers": 1,
                "ratios": [6, 5, 4],
                "kernel_size": 7,
                "residual_kernel_size": 3,
                "last_kernel_size": 3,
                "dilation_base": 2,
                "pad_mode": "constant",
                "compress": 2,
            },
            "transformer": {
                "d_model": 16,
                "num_heads": 2,
                "num_layers": 1,
                "layer_scale": 0.01,
                "context": 50,
                "dim_feedforward": 32,
                "input_dimension": 16,
                "output_dimensions": [16],
            },
            "quantizer": {"dimension": 8, "output_dimension": 16},
        },
    }
    path = folder / "tiny.yaml"  # of which JSON is a kind
    path.write_text(json.dumps(config))
    _write_weights(path, folder / "model.safetensors", seed)
    config |= {"weights_path": str(folder / "model.safetensors")} | settings
    path.write_text(json.dumps(config))
    return path


def _write_weights(config: Path, weights: Path, seed: int) -> None:
    from pocket_tts import TTSModel

    model = TTSModel.load_model(config=str(config))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                size = 1 / parameter[0].numel() ** 0.5
                parameter.normal_(0, size, generator=generator)
            elif "norm" not in name:
                parameter.zero_()
        model.flow_lm.bos_emb.normal_(generator=generator)
    safetensors.torch.save_file(model.state_dict(), weights)


def recording(hertz: float, seconds: float = 1.0, rate: int = 16_000) -> AudioChunk:
    """Somebody who hums."""
    t = np.arange(round(seconds * rate)) / rate
    return AudioChunk((0.3 * np.sin(2 * np.pi * hertz * t)).astype(np.float32), rate)
