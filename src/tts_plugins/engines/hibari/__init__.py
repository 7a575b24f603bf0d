"""A neural English voice that fits in a wheel: streamed, with exact words.

```
engine.py      the door: checks a request, picks the voice, yields the chunks
  source.py    request.text -> items to read aloud, with what can't be read left out
  reading.py   items -> phonemes, and which phonemes belong to which word of the text
  voice.py     phonemes -> samples, chunk by chunk (or in one go, for a graph we don't know)
    graph.py   cuts the voice's network in two and makes its decoder resumable
    vocoder.py the signal processing, resumable as well
  download.py  fetches the voices that aren't in hibari's wheel
  ipa.py       IPA -> the alphabet of the voice
```
"""

from tts_plugins.engines.hibari.engine import HibariEngine

__all__ = ["HibariEngine"]
