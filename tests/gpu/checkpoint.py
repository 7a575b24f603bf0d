"""VieNeu v3 Turbo for a GPU with tiny random weights: its own network, and a codec that hums.

Needs torch, transformers and safetensors, as VieNeu on a GPU does.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.engines.vieneu.models import (
    BOOKS,
    CODES,
    FRAME,
    VOCABULARY,
    make_turbo,
    make_vocabulary,
)

WIDTH = 64


def make_checkpoint(repo: Path) -> None:
    """What the SDK reads when it is given a folder in place of a repository."""
    make_turbo(repo)  # for what clones
    # By name: a type checker has none of these where they aren't installed.
    engine = importlib.import_module("vieneu._v3_turbo_engine")
    save_model = importlib.import_module("safetensors.torch").save_model
    config = engine.VieNeuV3TurboConfig(
        text_vocab_size=VOCABULARY,
        audio_vocab_size=CODES,
        n_vq=BOOKS,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=WIDTH,
        max_position_embeddings=1024,
        local_num_hidden_layers=1,
        local_num_attention_heads=4,
        local_intermediate_size=WIDTH,
        audio_pad_token_id=CODES,
        use_speaker_embedding=True,
    )
    torch.manual_seed(0)
    model = engine.VieNeuV3TurboForTTS(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1:
                torch.nn.init.normal_(weights, std=0.5 if "embeddings" in name else WIDTH**-0.5)
        # Nothing is ever over before the SDK's own bound on the frames of a text.
        model.text_embeddings.weight[config.speech_generation_end_token_id] = 0
    folder = repo / "update"
    folder.mkdir()
    config.save_pretrained(folder)
    save_model(model, str(folder / "model.safetensors"))
    make_vocabulary(folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    )


class HummingCodec(torch.nn.Module):
    """In place of MOSS-Audio-Tokenizer-Nano: the first code of a frame is its pitch."""

    config = SimpleNamespace(number_channels=2)

    @classmethod
    def from_pretrained(cls, *_: object, **__: object) -> HummingCodec:
        return cls()

    def batch_decode(self, rows: list[torch.Tensor], **_: object) -> Any:
        hums = [_hum(row[0]) for row in rows]
        audio = torch.nn.utils.rnn.pad_sequence(hums, batch_first=True)
        return SimpleNamespace(
            audio=audio[:, None].expand(-1, 2, -1),
            audio_lengths=torch.tensor([len(hum) for hum in hums]),
        )

    def encode(self, wav: torch.Tensor, **_: object) -> Any:
        level = wav[0, 0].reshape(-1, FRAME).abs().mean(1).mul(CODES - 1).long()
        return SimpleNamespace(audio_codes=level[None, None].expand(BOOKS, 1, -1))


def _hum(codes: torch.Tensor) -> torch.Tensor:
    turn = torch.arange(FRAME, device=codes.device) * (2 * np.pi / FRAME)
    return (torch.sin((codes % 64 + 8)[:, None] * turn) * 0.3).reshape(-1)
