"""Pocket's network, a frame a step: 80 ms of audio for a text and a voice.

The package's own ``generate_audio_stream`` starts two threads for each sentence, which compute all
of it at once, whoever else waits for the processor, and whose noise comes from the one generator
that torch has for everybody. Here a frame is computed when it is asked for, on the thread that
asks, and a stream has a generator of its own. The samples are the same, bit for bit (4.0.1).

Nothing is shared between streams but the weights, so any number may run at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from pocket_tts.default_parameters import MAX_TOKEN_PER_CHUNK
from pocket_tts.models.flow_lm import drifting_decode, lsd_decode, ot_decode, pointwise_decode
from pocket_tts.models.text_chunking import prepare_text_prompt
from pocket_tts.modules.stateful_module import increment_steps, init_states

from tts_plugins.engines.pocket.pieces import pieces
from tts_plugins.engines.pocket.states import State
from tts_plugins.types import Samples

logger = logging.getLogger(__name__)

Noise = Callable[[int, float], torch.Tensor]
"""The next noise of a stream, of shape [1, n], and of a standard deviation."""

_SAMPLERS = {
    "drifting": drifting_decode,
    "flow_matching": ot_decode,
    "lsd": lsd_decode,
    "pointwise": pointwise_decode,
}
"""From noise to a frame, by what a configuration calls it."""

# As the package has them, in TTSModel (4.0.1).
_SLOWEST, _PADDING = 3.0, 2.0
"""Tokens a second, and seconds beyond: a piece that takes longer has lost its end."""
_SHORTEST = 6
"""Frames before a piece may end: some voices would end a short one before it is spoken."""
_FADE = 0.005
"""Seconds at the beginning of a piece, where a decoder without a past makes a click."""


def noise(seed: int | None, device: torch.device) -> Noise:
    """A stream's own noise, the same for the same seed; another each time without one."""
    generator = torch.Generator(device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed % 2**63)  # as many as torch has
    return lambda n, std: torch.empty(1, n, device=device).normal_(0, std, generator=generator)


class Speaker:
    """One of pocket-tts's models, with what it needs to be stepped.

    Args:
        model: A ``TTSModel``.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._flow, self._mimi = model.flow_lm, model.mimi
        self._sampler = _SAMPLERS[self._flow.flow_type]

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        device: torch.device = self._model.device
        return device

    def speak(
        self,
        text: str,
        voice: State,
        temperature: float,
        noise: Noise,
        stopped: Callable[[], bool],
    ) -> Iterator[Samples]:
        """The frames of a text; none if the model has a sound for nothing in it.

        Args:
            text: Of any length.
            voice: What ``states`` gives. It isn't changed.
            temperature: Variance of the noise: 0 for the same each time.
            stopped: Whether to end at once, in the middle of a frame.
        """
        count = self._flow.conditioner.tokenizer.encode
        # One less, since a full stop may be added.
        for piece in pieces(text, lambda part: len(count(part)), MAX_TOKEN_PER_CHUNK - 1):
            yield from self._speak_piece(piece, voice, temperature, noise, stopped)

    def _speak_piece(
        self,
        text: str,
        voice: State,
        temperature: float,
        noise: Noise,
        stopped: Callable[[], bool],
    ) -> Iterator[Samples]:
        model, flow = self._model, self._flow
        try:
            prompt, after_end = prepare_text_prompt(
                text,
                model.pad_with_spaces_for_short_inputs,
                model.remove_semicolons,
                model.append_terminal_punctuation,
                model.capitalize_first_letter,
                model.replace_characters,
            )
        except ValueError:  # nothing is left of it
            return
        if model.model_recommended_frames_after_eos is not None:
            after_end = model.model_recommended_frames_after_eos
        else:
            after_end += 2
        with torch.inference_mode():
            tokens = flow.conditioner.prepare(prompt)
            seconds = tokens.shape[1] / _SLOWEST + _PADDING
            longest = math.ceil(seconds * model.config.mimi.frame_rate)
            past = self._past(voice, tokens.shape[1] + longest)
            self._advance(past, flow.bos_emb.new_empty(1, 0, flow.ldim), tokens)
            decode = self._decoder(longest)
            latent = flow.bos_emb.view(1, 1, -1)
        ended = False
        left = longest
        while left and not stopped():
            left -= 1
            with torch.inference_mode():
                hidden = self._advance(past, latent)
                heard_out = not ended and longest - left > _SHORTEST
                if heard_out and flow.out_eos(hidden).item() > model.eos_threshold:
                    ended = True
                    if not after_end:
                        return
                    left = min(left, after_end - 1)
                start = noise(flow.ldim, temperature**0.5)
                sampler = partial(flow.flow_net, hidden)
                latent = self._sampler(sampler, start, model.sampler_decode_steps)[:, None]
                if stopped():
                    return
                samples = decode(latent)
            yield samples
        if not ended and not stopped():
            logger.warning("pocket's model didn't end a sentence within %.0f s", seconds)

    def _past(self, voice: State, length: int) -> State:
        """What the network has heard of a voice, with room for ``length`` positions more."""
        heard = max(int(module["offset"].max()) for module in voice.values())
        past: State = init_states(self._flow, batch_size=1, sequence_length=heard + length)
        for name, module in voice.items():
            past[name]["offset"].copy_(module["offset"])
            past[name]["cache"][:, :, :heard] = module["cache"][:, :, :heard]
        return past

    def _advance(
        self, past: State, latent: torch.Tensor, tokens: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Have the network read tokens, or hear a frame; returns what it makes of that."""
        flow = self._flow
        read = latent.new_empty(1, 0, flow.dim) if tokens is None else flow.conditioner(tokens)
        hidden: torch.Tensor = flow.backbone(
            flow.input_linear(latent), read, latent, model_state=past
        )
        increment_steps(flow, past, increment=read.shape[1] + latent.shape[1])
        return hidden[:, -1].to(torch.float32)

    def _decoder(self, frames: int) -> Callable[[torch.Tensor], Samples]:
        """What makes samples of one frame after the other, at most so many."""
        mimi, flow = self._mimi, self._flow
        steps = int(mimi.encoder_frame_rate / mimi.frame_rate)
        past = init_states(mimi, batch_size=1, sequence_length=frames * steps)
        fade = torch.linspace(0, 1, int(self._model.sample_rate * _FADE))

        def decode(latent: torch.Tensor) -> Samples:
            nonlocal fade
            made = mimi.decode_from_latent(latent * flow.emb_std + flow.emb_mean, past)
            increment_steps(mimi, past, increment=steps)
            samples = made[0, 0].to("cpu", torch.float32)
            samples[: len(fade)] *= fade
            fade = fade[:0]
            array: Samples = np.ascontiguousarray(samples.numpy())
            return array

        return decode
