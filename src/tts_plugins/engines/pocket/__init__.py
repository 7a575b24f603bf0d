"""Kyutai's pocket-tts: small voices of seven languages on a CPU, and cloned ones.

```
engine.py      the door: checks a request, picks the voice, yields the frames
  speaker.py   text and a voice -> samples, a frame a step
  pieces.py    a long text -> pieces that the network reads without skipping a word
  states.py    what a voice is to the network: the package's own, from files, checked
  loading.py   which model, and how it is loaded without a trace in the rest of the process
```
"""

from tts_plugins.engines.pocket.engine import PocketEngine

__all__ = ["PocketEngine"]
