"""Forms, taken apart in pieces of any size."""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.errors import PermanentError
from worker.receivers.multipart import MOST_FIELDS, Form, FormReader
from worker.receivers.problems import ProblemError
from worker.spool import Spool

BODY = (
    '--b\r\nContent-Disposition: form-data; name="uri"\r\n\r\ncrm:1\r\n'
    '--b\r\ncontent-disposition: form-data; name="data0"; filename="résumé \\"é\\".pdf"\r\n'
    "Content-Type: application/pdf\r\n\r\nline\r\n--c\r\n-\r\n"
    '--b\r\nContent-Disposition: form-data; name="uri"\r\nContent-Type: text/plain; charset=utf-8\r\n\r\ncrm:é\r\n'
    '--b\r\nContent-Disposition: form-data; name="x"; filename="../../a.TXT"\r\n\r\n\r\n'
    '--b\r\nContent-Disposition: form-data; name="none"; filename=""\r\nContent-Type: image/png\r\n\r\n\r\n'
    '--b\r\nContent-Disposition: form-data; name="scan.png"\r\nContent-Type: image/png\r\n\r\nPNG\r\n'
    "--b--\r\nepilogue"
).encode()


def read(folder: Path, pieces: list[bytes], boundary: bytes = b"b", max_bytes: int = 1000) -> tuple[Form, list[str]]:
    with ExitStack() as stack:
        reader = FormReader(boundary, Spool(folder, max_bytes=max_bytes), stack)
        for piece in pieces:
            reader.write(piece)
        form = reader.finish()
        return form, [upload.keep().digest for upload in form.uploads]


@given(cuts=st.lists(st.integers(0, len(BODY)), max_size=20))
@settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
def test_a_form_is_the_same_however_it_arrives(tmp_path: Path, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(BODY)]
    form, digests = read(tmp_path, [BODY[a:b] for a, b in pairwise(places)])
    assert form.fields == {"uri": ["crm:1", "crm:é"]}
    assert [upload.filename for upload in form.uploads] == ['résumé "é".pdf', "a.TXT", "scan.png"]
    assert digests == [hashlib.sha256(content).hexdigest() for content in (b"line\r\n--c\r\n-", b"", b"PNG")]


PART = b'--b\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no form at all",
        b"--b",
        PART + b"content",
        PART + b"content\r\n--b",
        b"--b\r\n\r\ncontent\r\n--b--",
        b"--b\r\nContent-Disposition: attachment; name=f\r\n\r\nx\r\n--b--",
        b"--b\r\nbad header\r\n\r\nx\r\n--b--",
        b"--b\r\nContent-Disposition: form-data; name=f\r\nContent-Transfer-Encoding: base64\r\n\r\neA==\r\n--b--",
        b"--b\r\nContent-Disposition: form-data; name=f\r\n\r\n\xff\xfe\r\n--b--",
        b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + b"x" * 300_000 + b"\r\n--b--",
        b"--b\r\nX: " + b"y" * 100_000 + b"\r\n\r\nx\r\n--b--",
        b'--b\r\nContent-Disposition: form-data; name="f"\r\n\r\nx\r\n' * (MOST_FIELDS + 1) + b"--b--",
        (PART + b"\r\n") * 101 + b"--b--",
    ],
    ids=str,
)
def test_what_is_no_form_is_refused_and_leaves_nothing(tmp_path: Path, body: bytes) -> None:
    with pytest.raises(ProblemError) as caught:
        read(tmp_path, [body])
    assert (caught.value.status_code, caught.value.code) == (400, "malformed_form")
    assert not list(tmp_path.iterdir())


def test_a_boundary_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProblemError):
        read(tmp_path, [], boundary=b"b" * 10_000)


def test_a_file_that_is_too_large_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="more than the 10 bytes"):
        read(tmp_path, [PART + b"0123456789", b"0\r\n--b--"], max_bytes=10)
    assert not list(tmp_path.iterdir())
