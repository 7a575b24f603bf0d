"""VieNeu's networks, tiny and made on the spot: its own code runs on them, and ends soon.

Turbo speaks a frame for every three phonemes, a sine whose pitch is for the voice and the text to
decide. Nano's pieces last 40 ms a letter, and are a sine as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models

TURBO_REPO = "pnnbao-ump/VieNeu-TTS-v3-Turbo"
NANO_REPO = "pnnbao-ump/VieNeu-TTS-v3-Nano"
CODEC_REPO = "OpenMOSS-Team/MOSS-Audio-Tokenizer-Nano-ONNX"

FRAME = 3840
"""Samples of a frame of Turbo's codec."""

BOOKS, CODES, HIDDEN, HEADS = 16, 1024, 32, 2
EOS, FIRST_LETTER, VOCABULARY = 4, 20, 300
# The first channels of everything count; the others hold what it sounds like.
OVER, LETTERS, FRAMES, SOUND = 0, 1, 2, 3

FLOAT, INT32, INT64, BOOL = (
    TensorProto.FLOAT,
    TensorProto.INT32,
    TensorProto.INT64,
    TensorProto.BOOL,
)

Port = tuple[str, int, Sequence[int | str]]
node = helper.make_node


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    weights: Mapping[str, Any],
) -> None:
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info(*port) for port in inputs],
        [helper.make_tensor_value_info(*port) for port in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), str(path))


def make_hub(hub: Path) -> None:
    """A cache of the hub, as if everything had been downloaded."""
    make_turbo(_snapshot(hub, TURBO_REPO))
    make_codec(_snapshot(hub, CODEC_REPO))
    make_nano(_snapshot(hub, NANO_REPO))


def _snapshot(hub: Path, repo: str) -> Path:
    folder = hub / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("abc")
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    return snapshot


# Turbo


def _cached(source: str, *, past: bool) -> list[onnx.NodeProto]:
    """Nodes that keep the input itself as keys and values, and give all of it so far as ``all``."""
    nodes = [
        node("Reshape", [source, "split"], ["apart"]),
        node("Transpose", ["apart"], ["new"], perm=[0, 2, 1, 3]),
    ]
    kept = [
        node("Concat", [f"past_{name}_0", "new"], [f"present_{name}_0"], axis=2)
        if past
        else node("Identity", ["new"], [f"present_{name}_0"])
        for name in ("k", "v")
    ]
    return [
        *nodes,
        *kept,
        node("Transpose", ["present_v_0"], ["back"], perm=[0, 2, 1, 3]),
        node("Reshape", ["back", "join"], ["all"]),
        node("ReduceMean", ["all"], ["mean"], axes=[1], keepdims=1),
    ]


def _cache(name: str, length: str) -> list[Port]:
    size = (1, HEADS, length, HIDDEN // HEADS)
    return [(f"{name}_k_0", FLOAT, size), (f"{name}_v_0", FLOAT, size)]


_SHAPES = {
    "split": np.array([1, -1, HEADS, HIDDEN // HEADS]),
    "join": np.array([1, -1, HIDDEN]),
}


def make_turbo(repo: Path, seed: int = 0) -> None:
    """What is in VieNeu's repository: the backbone in two precisions, and what clones."""
    rng = np.random.default_rng(seed)
    for folder in ("onnx_update", "onnx_int8"):
        _make_backbone(repo / folder, np.random.default_rng(seed))
    spectrum = ("mag", "cos", "sin")
    save(
        repo / "denoiser.onnx",
        [node("Identity", [name], [f"clean_{name}"]) for name in spectrum],
        [(name, FLOAT, (1, "F", "T")) for name in spectrum],
        [(f"clean_{name}", FLOAT, (1, "F", "T")) for name in spectrum],
        {},
    )
    save(
        repo / "speaker_encoder.onnx",
        [
            node("ReduceMean", ["input"], ["mean"], axes=[1], keepdims=0),
            node("MatMul", ["mean", "weights"], ["output"]),
        ],
        [("input", FLOAT, (1, "T", 80))],
        [("output", FLOAT, (1, 192))],
        {"weights": rng.standard_normal((80, 192)).astype(np.float32)},
    )


def _make_backbone(folder: Path, rng: np.random.Generator) -> None:
    count = np.zeros((HIDDEN, HIDDEN), np.float32)
    count[LETTERS, OVER], count[FRAMES, OVER] = -1, 3
    sound = np.diag((np.arange(HIDDEN) >= SOUND).astype(np.float32))
    weights = {**_SHAPES, "count": count, "sound": sound}
    think = [
        node("ReduceSum", ["all", "time"], ["sum"], keepdims=1),
        node("MatMul", ["sum", "count"], ["counted"]),
        node("MatMul", ["mean", "sound"], ["sounding"]),
        node("Add", ["counted", "sounding"], ["hidden"]),
    ]
    weights["time"] = np.array([1])
    hidden: Port = ("hidden", FLOAT, (1, "T", HIDDEN))
    save(
        folder / "vieneu_prefill.onnx",
        [*_cached("inputs_embeds", past=False), *think],
        [("inputs_embeds", FLOAT, (1, "T", HIDDEN))],
        [hidden, *_cache("present", "P")],
        weights,
    )
    save(
        folder / "vieneu_decode_step.onnx",
        [*_cached("inputs_embeds", past=True), *think],
        [
            ("inputs_embeds", FLOAT, (1, 1, HIDDEN)),
            ("position_ids", INT64, (1, 1)),
            *_cache("past", "Q"),
        ],
        [hidden, *_cache("present", "P")],
        weights,
    )
    save(
        folder / "vieneu_acoustic_cached.onnx",
        [*_cached("token_emb", past=True), node("Add", ["token_emb", "mean"], ["hidden"])],
        [
            ("token_emb", FLOAT, (1, "T", HIDDEN)),
            ("position_ids", INT64, (1, "T")),
            *_cache("past", "Q"),
        ],
        [hidden, *_cache("present", "P")],
        _SHAPES,
    )
    text = rng.standard_normal((VOCABULARY, HIDDEN)) * 0.5
    audio = rng.standard_normal((BOOKS, CODES, HIDDEN)) * 0.3
    text[:, :SOUND], audio[:, :, :SOUND] = 0, 0
    text[EOS, OVER], text[3, FRAMES], text[FIRST_LETTER:, LETTERS] = 100, 1, 1
    speaking = (np.arange(HIDDEN) >= SOUND).astype(np.float32)
    np.savez(
        folder / "vieneu_v3_heads.npz",
        text_emb=text.astype(np.float32),
        audio_emb=audio.astype(np.float32),
        xvec_w=rng.standard_normal((HIDDEN, 192)).astype(np.float32),
        xvec_b=np.zeros(HIDDEN, np.float32),
        xvec_ln_w=speaking,
        xvec_ln_b=np.zeros(HIDDEN, np.float32),
        xvec_ln_eps=np.float32(1e-5),
    )
    (folder / "vieneu_backbone_shared.data").write_bytes(b"x")
    (folder / "config.json").write_text(
        json.dumps(
            {
                "n_vq": BOOKS,
                "hidden_size": HIDDEN,
                "num_hidden_layers": 1,
                "local_num_hidden_layers": 1,
                "local_num_attention_heads": HEADS,
                "audio_pad_token_id": CODES,
                "text_prompt_start_token_id": 1,
                "text_prompt_end_token_id": 2,
                "speech_generation_start_token_id": 3,
                "speech_generation_end_token_id": EOS,
                "audio_ref_slot_token_id": 5,
                "default_style_token_id": 6,
                "text_vocab_size": VOCABULARY,
                "use_speaker_embedding": True,
                "speaker_embedding_dim": 192,
            }
        )
    )
    make_vocabulary(folder)


def make_vocabulary(folder: Path) -> None:
    letters = [*map(chr, range(32, 127)), *"ɛɔəɲŋʈɕʐɣɤɯʷːˈɜʃðɹæɡʌɪʊɗɓθʒɑ"]
    vocabulary = {"<unk>": 0} | {c: FIRST_LETTER + i for i, c in enumerate(letters)}
    Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>")).save(
        str(folder / "tokenizer.json")
    )


def make_codec(folder: Path) -> None:
    """Turbo's codec: the first code of a frame is its pitch, as whole periods in the frame."""
    speak = [
        node("Gather", ["audio_codes", "first"], ["code"], axis=2),
        node("Mod", ["code", "pitches"], ["pitch"]),
        node("Cast", ["pitch"], ["number"], to=FLOAT),
        node("Add", ["number", "lowest"], ["periods"]),
        node("Unsqueeze", ["periods", "last"], ["column"]),
        node("Mul", ["column", "turn"], ["phase"]),
        node("Sin", ["phase"], ["sine"]),
        node("Mul", ["sine", "loudness"], ["frames"]),
        node("Reshape", ["frames", "row"], ["mono"]),
        node("Concat", ["mono", "mono"], ["audio"], axis=1),
        node("Mul", ["audio_code_lengths", "frame"], ["audio_lengths"]),
    ]
    weights = {
        "first": np.array(0),
        "pitches": np.array(64, np.int32),
        "lowest": np.array(8, np.float32),
        "last": np.array([2]),
        "turn": (2 * np.pi * np.arange(FRAME) / FRAME).astype(np.float32)[None, None],
        "loudness": np.array(0.3, np.float32),
        "row": np.array([1, 1, -1]),
        "frame": np.array([FRAME], np.int32),
    }
    inputs: list[Port] = [
        ("audio_codes", INT32, (1, "T", BOOKS)),
        ("audio_code_lengths", INT32, (1,)),
    ]
    outputs: list[Port] = [("audio", FLOAT, (1, 2, "N")), ("audio_lengths", INT32, (1,))]
    save(folder / "moss_audio_tokenizer_decode_full.onnx", speak, inputs, outputs, weights)
    state: dict[str, Port] = {
        "offset": ("", INT32, (1,)),
        "seen": ("", INT32, (1,)),
        "keys": ("", FLOAT, (1, 2, 8, 4)),
        "values": ("", FLOAT, (1, 2, 8, 4)),
        "positions": ("", INT32, (1, 8)),
    }
    save(
        folder / "moss_audio_tokenizer_decode_step.onnx",
        [*speak, *(node("Identity", [f"{n}_in"], [f"{n}_out"]) for n in state)],
        [*inputs, *((f"{n}_in", kind, size) for n, (_, kind, size) in state.items())],
        [*outputs, *((f"{n}_out", kind, size) for n, (_, kind, size) in state.items())],
        weights,
    )
    cache = {"offset_input_name": "seen_in", "offset_output_name": "seen_out", "offset_shape": [1]}
    for ours, theirs in (("keys", "keys"), ("values", "values"), ("positions", "positions")):
        cache |= {
            f"cached_{theirs}_input_name": f"{ours}_in",
            f"cached_{theirs}_output_name": f"{ours}_out",
        }
    cache |= {"cache_shape": [1, 2, 8, 4], "positions_shape": [1, 8]}
    offset = {"input_name": "offset_in", "output_name": "offset_out", "shape": [1]}
    (folder / "codec_browser_onnx_meta.json").write_text(
        json.dumps(
            {"streaming_decode": {"transformer_offsets": [offset], "attention_caches": [cache]}}
        )
    )
    save(
        folder / "moss_audio_tokenizer_encode.onnx",
        [
            node("Abs", ["waveform"], ["loud"]),
            node("ReduceMean", ["loud"], ["mono"], axes=[1], keepdims=0),
            node("Reshape", ["mono", "frames"], ["apart"]),
            node("ReduceMean", ["apart"], ["level"], axes=[2], keepdims=1),
            node("Mul", ["level", "scale"], ["scaled"]),
            node("Cast", ["scaled"], ["whole"], to=INT64),
            node("Tile", ["whole", "books"], ["codes"]),
        ],
        [("waveform", FLOAT, (1, 2, "N")), ("input_lengths", INT32, (1,))],
        [("codes", INT64, (1, "T", BOOKS))],
        {
            "frames": np.array([1, -1, FRAME]),
            "scale": np.array(CODES - 1, np.float32),
            "books": np.array([1, 1, BOOKS]),
        },
    )
    for name in ("decode_shared", "encode"):
        (folder / f"moss_audio_tokenizer_{name}.data").write_bytes(b"x")


# Nano


def make_nano(folder: Path) -> None:
    voice: list[Port] = [("spk", FLOAT, (1, 192)), ("style", FLOAT, (1, 50, 256))]
    context: list[Port] = [("ctx", FLOAT, (1, "L", 1)), ("ctx_mask", BOOL, (1, "L"))]
    save(
        folder / "text_encoder.onnx",
        [
            node("Cast", ["ids"], ["numbers"], to=FLOAT),
            node("Unsqueeze", ["numbers", "last"], ["column"]),
            node("Greater", ["column", "none"], ["there"]),
            node("Cast", ["there"], ["ctx"], to=FLOAT),
        ],
        [("ids", INT64, (1, "L")), voice[1]],
        [context[0]],
        {"last": np.array([2]), "none": np.array(0, np.float32)},
    )
    save(
        folder / "duration_predictor.onnx",
        [
            node("ReduceSum", ["ctx", "all"], ["letters"], keepdims=0),
            node("Mul", ["letters", "each"], ["seconds"]),
            node("Log", ["seconds"], ["log"]),
            node("Reshape", ["log", "one"], ["log_seconds"]),
        ],
        [*context, voice[0]],
        [("log_seconds", FLOAT, (1,))],
        {"all": np.array([1, 2]), "each": np.array(0.04, np.float32), "one": np.array([1])},
    )
    noise: Port = ("x", FLOAT, (1, 144, "T"))
    save(
        folder / "vector_estimator.onnx",
        [node("Neg", ["x"], ["v"])],
        [noise, ("t", FLOAT, (1,)), *context, *voice],
        [("v", FLOAT, (1, 144, "T"))],
        {},
    )
    period = np.sin(2 * np.pi * 20 * np.arange(1536) / 1536) * 0.3
    save(
        folder / "codec_decoder.onnx",
        [
            node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
            node("Mul", ["mean", "nothing"], ["zero"]),
            node("Unsqueeze", ["zero", "last"], ["column"]),
            node("Add", ["column", "period"], ["frames"]),
            node("Reshape", ["frames", "row"], ["wav"]),
        ],
        [noise],
        [("wav", FLOAT, (1, 1, "N"))],
        {
            "nothing": np.array(0, np.float32),
            "last": np.array([2]),
            "period": period.astype(np.float32)[None, None],
            "row": np.array([1, 1, -1]),
        },
    )
    letters = [*map(chr, range(32, 127)), *"ɛɔəɲŋʈɕʐɣɤɯʷːˈɜʃðɹæɡʌɪʊɗɓθʒɑ①②③"]
    (folder / "config.json").write_text(
        json.dumps(
            {
                "vocab": {letter: i + 4 for i, letter in enumerate(letters)},
                "bos_id": 1,
                "eos_id": 2,
                "pad_id": 0,
                "emotion_tags": {f"<|emotion_{k}|>": "①②③"[k - 1] for k in (1, 2, 3)},
            }
        )
    )
    np.savez(
        folder / "constants.npz",
        null_spk=np.zeros(192, np.float32),
        null_style=np.zeros((50, 256), np.float32),
        latent_mean=np.zeros(24, np.float32),
        latent_std=np.ones(24, np.float32),
    )
    rng = np.random.default_rng(1)
    save(
        folder / "speaker_encoder.onnx",
        [
            node("ReduceMean", ["input"], ["mean"], axes=[1], keepdims=0),
            node("MatMul", ["mean", "weights"], ["output"]),
        ],
        [("input", FLOAT, (1, "T", 80))],
        [("output", FLOAT, (1, 192))],
        {"weights": rng.standard_normal((80, 192)).astype(np.float32)},
    )
    save(
        folder / "codec_encoder.onnx",
        [
            node("MaxPool", ["wav"], ["level"], kernel_shape=[256], strides=[256]),
            node("Tile", ["level", "channels"], ["latent"]),
        ],
        [("wav", FLOAT, (1, 1, "N"))],
        [("latent", FLOAT, (1, 24, "T"))],
        {"channels": np.array([1, 24, 1])},
    )
    save(
        folder / "reference_encoder.onnx",
        [
            node("ReduceMean", ["ref"], ["mean"], axes=[1, 2], keepdims=1),
            node("Tile", ["mean", "size"], ["style"]),
        ],
        [("ref", FLOAT, (1, 144, "T")), ("ref_mask", BOOL, (1, "T"))],
        [("style", FLOAT, (1, 50, 256))],
        {"size": np.array([1, 50, 256])},
    )
