"""The moving picture of `make try` in the README."""

from xml.etree import ElementTree

from kordon.testing.pages.recording import drawing, shortened


def test_silence_is_cut_and_lines_at_once_come_one_after_the_other() -> None:
    times = [at for at, _ in shortened([(10.0, "a"), (10.0, "b"), (40.0, "c"), (41.0, "d")])]
    assert times == [0.0, 0.12, 2.62, 3.62]


def test_what_was_printed_is_text_in_the_picture() -> None:
    """Also what means something in XML."""
    texts = [each.text for each in ElementTree.fromstring(drawing([(0.0, "a < b"), (1.0, "&c")])).iter() if each.text]
    assert "a < b" in texts
    assert "&c" in texts
