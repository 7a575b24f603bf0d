"""A neural English voice that fits in a wheel: streamed, with exact words.

```
engine.py      the door: checks a request, picks the voice, yields the chunks
  speaker.py   phonemes -> samples, chunk by chunk; or in one go, for a network we don't know
    vocoder.py the signal processing, a few frames at a time
  timing.py    when each word is heard
  loading.py   voice file -> speaker, checked
    graph.py   cuts its network in two and makes the second half resumable
  download.py  fetches the voices that aren't in hibari's wheel
```
"""

from tts_plugins.engines.hibari.engine import HibariEngine

__all__ = ["HibariEngine"]
