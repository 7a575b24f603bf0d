"""Any voice of Piper, streamed within the sentence, with exact words.

```
engine.py        the door: checks a request, picks the voice, yields the chunks
  files.py       where voices are: a file, a folder, a package, the hub
    config.py    what the file beside a voice says of it
  letters.py     reads for voices that were taught letters; others have phonemes' readers
  speaker.py     ids -> samples, chunk by chunk; or in one go, for a network we don't know
  timing.py      when each word is heard
  loading.py     voice file -> speaker, checked
    graph.py     cuts its network in three
    resumable.py makes a stack of convolutions resumable
```
"""

from tts_plugins.engines.piper.engine import PiperEngine

__all__ = ["PiperEngine"]
