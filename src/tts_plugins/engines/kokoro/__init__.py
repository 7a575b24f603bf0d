"""Kokoro-82M: fifty voices of nine languages, and any blend of them.

```
engine.py        the door: checks a request, picks voice and language, yields the chunks
  model.py       tokens -> samples and durations: an ONNX export of either family
  pieces.py      cuts what is read into pieces that are spoken one after the other
  sound.py       joins the pieces: how much silence to keep, when each word is heard
  readers.py     text -> Kokoro's phonemes, by language
  voices.py      style vectors: read from files, blended
  files.py       where model and voices are: a file, a folder, a package, the hub
```
"""

from tts_plugins.engines.kokoro.engine import KokoroEngine

__all__ = ["KokoroEngine"]
