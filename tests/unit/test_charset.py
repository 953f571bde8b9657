from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.charset import decode, is_text
from pipelines.errors import PermanentError

FRENCH = "Le contrôle a échoué : l'élève n'était pas là où il devait être, garçon. " * 3
POLISH = "Zażółć gęślą jaźń. Łódź leży w Polsce, a Kraków był stolicą przed wiekami. " * 6
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 8


@pytest.mark.parametrize(
    ("text", "encoding", "expected"),
    [
        (FRENCH, "utf-8", "utf-8"),
        (FRENCH, "utf-8-sig", "utf-8-sig"),
        (FRENCH, "utf-16", "utf-16"),
        (FRENCH, "utf-16-le", "utf-16-le"),
        (FRENCH, "utf-16-be", "utf-16-be"),
        (FRENCH, "utf-32", "utf-32"),
        (FRENCH, "utf-32-le", "utf-32-le"),
        (FRENCH, "cp1252", "cp1252"),
        (RUSSIAN, "cp1251", "cp1251"),
        (POLISH, "cp1250", "cp1250"),
    ],
)
def test_text_comes_back_from_its_character_set(text: str, encoding: str, expected: str) -> None:
    decoded, found = decode(text.encode(encoding))
    assert decoded == text
    assert found == expected


def test_a_short_french_word_is_not_read_as_czech() -> None:
    assert decode("père et mère".encode("cp1252")) == ("père et mère", "cp1252")


def test_a_declared_set_is_honoured_and_a_wrong_name_ignored() -> None:
    assert decode("ceník".encode("iso8859-2"), "iso-8859-2") == ("ceník", "iso8859-2")
    assert decode(b"caf\xe9", "no-such-set") == ("café", "cp1252")


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 8, b"\0" * 500, b"\x01\x02\x03\x04" * 100, b"abc\0\x05\x06\x07" * 50]
)
def test_binary_is_refused(data: bytes) -> None:
    assert not is_text(data)
    with pytest.raises(PermanentError) as caught:
        decode(data)
    assert caught.value.code == "unsupported_format"


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs", "Cn", "Co"]), min_size=1))
def test_utf8_is_always_recognised(text: str) -> None:
    assert decode(text.encode())[0] == text.removeprefix("\ufeff")


@given(st.binary(max_size=400))
def test_any_bytes_end_as_text_or_as_our_error(data: bytes) -> None:
    try:
        text, _ = decode(data)
    except PermanentError as error:
        assert error.code == "unsupported_format"
    else:
        assert isinstance(text, str)
