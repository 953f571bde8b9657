from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.charset import decode
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


@pytest.mark.parametrize(
    ("text", "encodings"),
    [
        ("Наименование;Цена\nБолт М8;15,50\nГайка;7,20\n", ("cp1251", "cp866", "koi8-r", "iso8859-5")),
        ("Артикул;Город\n1;Москва\n2;Санкт-Петербург\n", ("cp1251", "cp866", "koi8-r", "mac_cyrillic")),
        ("Nazwa;Ilość;Cena\nŚruba;12;1,50\nŁożysko;3;45,00\n", ("cp1250", "iso8859-2", "cp852")),
        ("Název;Množství\nŠroub;12\nLožisko;3\n", ("cp1250", "iso8859-2", "cp852")),
        ("Nom;Prénom;Ville\nLefèvre;Hélène;Orléans\n", ("cp1252", "latin-1", "iso8859-15")),
        ("Name;Straße;Größe\nMüller;Königsallee;groß\n", ("cp1252", "latin-1", "cp850")),
        ("Año;Niño\n2020;José\n2021;Íñigo\n", ("cp1252", "latin-1")),
        ("Ação;Preço\nManutenção;12\nOperações;3\n", ("cp1252", "latin-1")),
        ("name,price\ncafé,£5\nnaïve,€10\n", ("cp1252",)),
        ("Όνομα;Πόλη\nΓιώργος;Αθήνα\n", ("cp1253", "iso8859-7")),
        ("Şehir;Nüfus\nİstanbul;15\nIğdır;2\n", ("cp1254", "iso8859-9")),
        ("שם;עיר\nדוד;ירושלים\n", ("cp1255", "iso8859-8")),
        ("الاسم;المدينة\nأحمد;القاهرة\n", ("cp1256", "iso8859-6")),
        ("品名,数量,価格\nボルト,120,15\nナット,80,7\n", ("cp932", "euc_jp", "iso2022_jp")),
        ("商品コード;商品名;単価\nA001;鉛筆;100\n", ("cp932", "euc_jp", "iso2022_jp")),
        ("name,city\nTaro,東京\n", ("cp932",)),
        ("名称;数量;价格\n螺栓;120;15\n螺母;80;7\n", ("gb18030", "gbk")),
        ("名稱;數量;價格\n螺栓;120;15\n螺母;80;7\n", ("big5", "cp950")),
        ("이름;도시\n김철수;서울\n이영희;부산\n", ("cp949", "euc_kr")),
        ("Quantity, 12 pieces; see page 7.\r\nGrüße aus Köln\r\n", ("cp500", "cp037")),
    ],
)
def test_short_tables_in_old_character_sets(text: str, encodings: tuple[str, ...]) -> None:
    found = {encoding: decode(text.encode(encoding))[0] for encoding in encodings}
    assert found == dict.fromkeys(encodings, text)


def test_a_file_that_is_ascii_for_its_first_pages_is_judged_by_what_is_not() -> None:
    text = "plain line\n" * 30_000 + RUSSIAN
    assert decode(text.encode("cp1251")) == (text, "cp1251")


def test_a_declared_set_of_ascii_bytes_comes_before_utf8() -> None:
    assert decode("日本".encode("iso2022_jp"), "iso-2022-jp") == ("日本", "iso2022_jp")
    assert decode(b"+2D3cAQ-", "utf-7")[0] == "\U0001f401"


def test_a_short_french_word_is_not_read_as_czech() -> None:
    assert decode("père et mère".encode("cp1252")) == ("père et mère", "cp1252")


def test_a_declared_set_is_honoured_and_a_wrong_name_ignored() -> None:
    assert decode("ceník".encode("iso8859-2"), "iso-8859-2") == ("ceník", "iso8859-2")
    assert decode(b"caf\xe9", "no-such-set") == ("café", "cp1252")


@pytest.mark.parametrize(
    "data", [bytes(range(256)) * 8, b"\0" * 500, b"\x01\x02\x03\x04" * 100, b"abc\0\x05\x06\x07" * 50]
)
def test_binary_is_refused(data: bytes) -> None:
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
