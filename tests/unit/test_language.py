"""Language detection in the names of Postgres."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines.language import CONFIGURATIONS, detect_language, document_language

RIGHTS = {
    "english": "All human beings are born free and equal in dignity and rights. They are endowed with reason.",
    "french": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont doués de raison.",
    "german": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft begabt.",
    "spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y están dotados de razón.",
    "italian": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono dotati di ragione.",
    "portuguese": "Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Dotados de razão.",
    "dutch": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn begiftigd met verstand.",
    "swedish": "Alla människor är födda fria och lika i värde och rättigheter. De har utrustats med förnuft.",
    "russian": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены разумом.",
    "greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا وعليهم أن يعامل بعضهم بعضا.",
    "hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है।",
    "turkish": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler.",
}  # fmt: skip
WITHOUT_STEMMER = {
    "Chinese": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "Japanese": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 이성과 양심을 부여받았다.",
    "Polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są obdarzeni rozumem.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון.",
}  # fmt: skip


POSTGRES_14 = """arabic armenian basque catalan danish dutch english finnish french german greek hindi hungarian
indonesian irish italian lithuanian nepali norwegian portuguese romanian russian serbian spanish swedish tamil
turkish yiddish"""


@pytest.mark.parametrize("name", RIGHTS)
def test_languages_with_a_stemmer(name: str) -> None:
    assert detect_language(RIGHTS[name], "irish") == name


@pytest.mark.parametrize("name", WITHOUT_STEMMER)
def test_languages_without_one_are_simple(name: str) -> None:
    assert detect_language(WITHOUT_STEMMER[name], "english") == "simple"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "E-4012",
        "Bonjour à tous",
        "12.50 | 33 | 2024-01-01 | 77.0 | " * 20,
        "SKU-1 8842-B\n" * 5,
        "!" * 500,
    ],
)
def test_what_cannot_be_told_is_the_default(text: str) -> None:
    assert detect_language(text, "french") == "french"


def test_capitals_do_not_mislead() -> None:
    assert detect_language(RIGHTS["french"].upper(), "english") == "french"


def test_names_are_those_of_postgres() -> None:
    built_in = set(POSTGRES_14.split())
    assert built_in - set(CONFIGURATIONS.values()) == {"yiddish"}
    assert set(CONFIGURATIONS.values()) <= built_in


def test_document_takes_the_majority() -> None:
    english, french = RIGHTS["english"] * 12, RIGHTS["french"] * 36
    assert document_language(english + french, "simple") == "french"
    assert document_language("", "german") == "german"
    assert document_language("E-4012", "german") == "german"


def test_threads_agree() -> None:
    texts = list(RIGHTS.values()) * 20
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda text: detect_language(text, ""), texts)) == list(RIGHTS) * 20


def test_loads_without_a_warning() -> None:
    code = f"from pipelines.language import detect_language; print(detect_language({RIGHTS['french']!r}, ''))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "utf8", "-c", code], capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == ("french", "")
