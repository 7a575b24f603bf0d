from __future__ import annotations

from tts_plugins.playhead import Playhead


def test_a_listener_who_ran_dry_goes_on_from_now() -> None:
    listener = Playhead(10.0)
    assert listener.ahead(10.0) == 0.0
    assert listener.add(2.0, now=11.0) == 1.0  # had waited for a second
    assert listener.dry_at == 13.0
    assert listener.add(1.0, now=12.0) == 0.0  # was still listening
    assert listener.dry_at == 14.0
    assert listener.ahead(13.5) == 0.5
    assert listener.add(1.0, now=20.0) == 6.0
    assert listener.dry_at == 21.0


def test_a_listener_has_left_what_it_hasnt_taken() -> None:
    listener = Playhead(10.0)
    listener.keep(2.0, now=15.0)
    assert listener.ahead(15.0) == 2.0
    listener.keep(1.0, now=15.5)  # has more than that
    assert listener.ahead(15.5) == 1.5
