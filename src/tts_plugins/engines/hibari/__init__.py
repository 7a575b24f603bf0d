"""A neural English voice that fits in a wheel: streamed, with exact words.

```
engine.py      the door: checks a request, picks the voice, yields the chunks
  source.py    request.text -> items to read aloud, with what can't be read left out
  reading.py   items -> phonemes, and which phonemes belong to which word of the text
    align.py   which words of the rewritten text came from which item
    ipa.py     IPA -> the alphabet of the voice
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
