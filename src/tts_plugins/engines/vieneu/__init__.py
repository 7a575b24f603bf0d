"""VieNeu-TTS: Vietnamese, and the English inside it, with its own SDK; cloned from a few seconds.

```
engine.py     the door: checks a request, picks the voice, yields the chunks
  text.py     what the SDK is given of a text: no letter that it stumbles over, short clauses
  options.py  what a request may ask for
  voices.py   the SDK's voices, and those that were learnt
  loading.py  opens the SDK, so that each of its steps is short and can be broken off
  rows.py     on a GPU: who is computed with whom, and who waits
```
"""

from tts_plugins.engines.vieneu.engine import VieNeuEngine

__all__ = ["VieNeuEngine"]
