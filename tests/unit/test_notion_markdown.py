"""Notion's enhanced Markdown as plain Markdown, and what the pipeline then reads in it."""

from __future__ import annotations

import time

import pytest

from pipelines.extract.markdown import markdown_blocks
from worker.connectors.notion.markdown import inline, read_markdown
from worker.connectors.notion.nodes import DEEPEST, Node, render, walk

PAGE = "598337872cf94fdf8782e53db20768a5"
BLOCK = "0a3d277ffb654eb7a087bd292b36d8f5"
SIGNED = "https://prod-files-secure.s3.us-west-2.amazonaws.com/space/file/plan.pdf?X-Amz-Expires=3600&X-Amz-Signature=1"


def plain(text: str) -> str:
    return render(read_markdown(text).nodes)


def texts(text: str) -> list[str]:
    return [block.text for block in markdown_blocks(plain(text))]


@pytest.mark.parametrize(
    ("enhanced", "expected"),
    [
        ("Text", "Text"),
        ('Text {color="red_bg"}', "Text"),
        ('A \\{color="red"\\} b', 'A \\{color="red"\\} b'),
        ('# One {toggle="true" color="blue"}\n\tInside', "# One\n\nInside"),
        ("#### Four", "#### Four"),
        ("- a\n\t- b\n\t\tc\n- d", "- a\n  - b\n\n    c\n- d"),
        ("1. a\n1. b\n\t- c", "1. a\n2. b\n   - c"),
        ("- [ ] open\n- [x] done", "- [ ] open\n- [x] done"),
        ("A paragraph\n\tand what is below", "A paragraph\n\nand what is below"),
        ("> One<br>Two\n\tThree", "> One\\\n> Two\n>\n> Three"),
        ("<details>\n<summary>More **here**</summary>\n\tInside\n</details>", "More **here**\n\nInside"),
        ('::: callout {icon="💡" color="gray_bg"}\n\tWatch out\n:::', "Watch out"),
        ('<callout icon="💡" color="gray_bg">\n\tWatch out\n</callout>', "Watch out"),
        (
            "<columns>\n\t<column>\n\t\tLeft\n\t</column>\n\t<column>\n\t\tRight\n\t</column>\n</columns>",
            "Left\n\nRight",
        ),
        (f'<synced_block url="https://www.notion.so/{PAGE}#{BLOCK}">\n\tSame\n</synced_block>', "Same"),
        ("A\n<empty-block/>\n<table_of_contents/>\nB", "A\n\nB"),
        ("---", "---"),
        ("$$\na_1 * b_2\n$$", "```latex\na_1 * b_2\n```"),
        ("```python\nif a < b:\n\tprint(`x`)  # {}\n```", "```python\nif a < b:\n\tprint(`x`)  # {}\n```"),
        ("- a\n\t```\n\tx\n\t\ty\n\t```", "- a\n\n  ```\n  x\n  \ty\n  ```"),
        ("````\n```\n````", "````\n```\n````"),
        (
            '<table header-row="true">\n<tr color="red">\n<td>**A**</td>\n<td>B \\| C</td>\n</tr>\n'
            "<tr>\n<td>1<br>2</td>\n<td></td>\n</tr>\n</table>",
            "| **A** | B \\| C |\n| --- | --- |\n| 1 2 |  |",
        ),
        ("| A | B |\n| --- | --- |\n| 1 | 2 |", "| A | B |\n| --- | --- |\n| 1 | 2 |"),
        (f'<page url="https://www.notion.so/Sub-{PAGE}">Sub</page>', f"[Sub](https://www.notion.so/{PAGE})"),
        ("![A cat](https://example.com/cat.png)", "[A cat](https://example.com/cat.png)"),
        (f"![]({SIGNED})", "plan.pdf"),
        (f'<pdf src="{SIGNED}">The plan</pdf>', "plan.pdf: The plan"),
        ('<video src="https://example.com/a.mp4"></video>', "[a.mp4](https://example.com/a.mp4)"),
        ("▶## Old toggle\n\tInside", "## Old toggle\n\nInside"),
        ("+1 for this", "\\+1 for this"),
        ("A<br># no heading", "A\\\n\\# no heading"),
        ("<p", "<p"),
        ("", ""),
    ],
)
def test_blocks_become_plain_markdown(enhanced: str, expected: str) -> None:
    assert plain(enhanced) == (expected + "\n" if expected else "")


@pytest.mark.parametrize(
    ("enhanced", "expected"),
    [
        ("**bold** and *italic* and ~~gone~~", "**bold** and *italic* and ~~gone~~"),
        ("**注意。**です", "注意。です"),
        ("**bold **and", "bold and"),
        ("in**side**", "inside"),
        ("**all *of* it**", "all *of* it"),
        ("5 * 3 * 2", "5 \\* 3 \\* 2"),
        ("a*b", "a\\*b"),
        ("snake_case __init__", "snake\\_case \\_\\_init\\_\\_"),
        ("R&amp;D", "R\\&amp;D"),
        ("`a_b*c`", "`a_b*c`"),
        ("$`x_1`$ and $y_2$", "$`x_1`$ and $`y_2`$"),
        ("\\$5 and \\$6", "\\$5 and \\$6"),
        ('<span color="red">red</span> <span underline="true">u</span>', "red u"),
        ("[a_b](https://example.com/a_b?c=1&d=2)", "[a\\_b](https://example.com/a_b?c=1&d=2)"),
        (f"[plan]({SIGNED})", "[plan](https://prod-files-secure.s3.us-west-2.amazonaws.com/space/file/plan.pdf)"),
        (
            f'<mention-page url="https://app.notion.com/p/{PAGE}">Plan</mention-page>',
            f"[Plan](https://www.notion.so/{PAGE})",
        ),
        (f'<mention-page url="https://app.notion.com/p/{PAGE}"/>', f"[page](https://www.notion.so/{PAGE})"),
        ('<mention-user url="user://1">Ada</mention-user>, ok', "@Ada, ok"),
        ('<mention-user url="user://1"/>, ok', ", ok"),
        ('<mention-date start="2026-01-02" startTime="10:00" timeZone="Asia/Seoul"/>', "2026-01-02 10:00 Asia/Seoul"),
        ('<mention-date start="2026-01-02" end="2026-01-05"/>', "2026-01-02 to 2026-01-05"),
        ("As said[^https://example.com/a_b]", "As said (https://example.com/a\\_b)"),
        ("a<br>b", "a\\\nb"),
        ("<br>a<br>", "a"),
        ("\\<div\\> \\[x\\] \\^", "\\<div\\> \\[x\\] \\^"),
    ],
)
def test_a_line_becomes_plain_markdown(enhanced: str, expected: str) -> None:
    assert inline(enhanced) == expected


def test_the_pipeline_reads_what_was_written() -> None:
    enhanced = (
        '# Codes {color="red"}\nError `E-4012` in my_table_name, see \\*that\\* \\<tag\\> 2 \\* 3\n'
        "- one\n\t- two<br>lines\n<columns>\n\t<column>\n\t\tLeft\n\t</column>\n</columns>"
    )
    assert texts(enhanced) == [
        "Codes",
        "Error E-4012 in my_table_name, see *that* <tag> 2 * 3",
        "one",
        "two\nlines",
        "Left",
    ]


def test_deep_lists_keep_every_word() -> None:
    deep = "\n".join("\t" * depth + f"- level {depth}" for depth in range(40))
    assert texts(deep) == [f"level {depth}" for depth in range(40)]
    assert max(len(line) - len(line.lstrip()) for line in plain(deep).splitlines()) == 2 * DEEPEST


def test_what_is_below_and_what_is_missing_is_told() -> None:
    content = read_markdown(
        f'<page url="https://www.notion.so/{PAGE}">Sub</page>\n'
        f'<database url="https://www.notion.so/{BLOCK}" inline="true">Tasks</database>\n'
        f'- a\n\t<unknown url="https://www.notion.so/{PAGE}#{BLOCK}" alt="bookmark"/>\n- b\n'
        f"![](https://example.com/out.png)\n![]({SIGNED})"
    )
    assert (content.pages, content.databases) == ([PAGE], [BLOCK])
    (part,) = (node for node in walk(content.nodes) if node.kind == "part")
    assert (part.text, part.note) == (BLOCK, "bookmark")
    part.children = [Node("paragraph", "found")]
    assert "- a\n\n  found\n- b" in render(content.nodes)
    assert [(one.kind, one.hosted) for one in content.media] == [("image", False), ("image", None)]


def test_no_text_is_lost_in_a_block_that_does_not_end() -> None:
    assert texts("```\nnever closed")[0].strip() == "never closed"
    assert texts("<table>\n<tr>\n<td>cell</td>\n</tr>") == ["| cell |\n| --- |"]


@pytest.mark.parametrize(
    "hostile",
    [
        "[^" * 20_000,
        "`a" * 20_000,
        "$a" * 20_000,
        "](" * 20_000,
        "*a" * 20_000,
        " " * 40_000 + "{",
        "x" + " " * 40_000 + "{",
        "<mention-page " * 4_000,
        '{a="" ' * 8_000,
        "<table>\n" + "<tr>\n<td>a</td>\n" * 8_000,
        "\n".join("\t" * depth + "- a" for depth in range(1_500)),
    ],
)
def test_hostile_text_takes_no_time(hostile: str) -> None:
    began = time.process_time()
    plain(hostile)
    assert time.process_time() - began < 5
