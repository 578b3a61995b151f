"""A body of very many small values is not parsed: it would hold up everybody else's requests."""

import json

import pytest

from refold.server.body import BYTES_MIN, VALUES_MAX, Unreadable, has_too_many_values, read_request
from refold.server.wires import find_wire


def many(piece: str, count: int) -> bytes:
    return f'{{"model": "m", "messages": [{{"role": "user", "content": "hi"}}], "x": [{piece * count}1]}}'.encode()


@pytest.mark.parametrize("piece", ["[],", "{},", "1,", '"",', '"a\\"b",', "[[[[]]]],"])
def test_a_body_of_too_many_values_is_found_out_without_parsing_it(piece: str) -> None:
    assert has_too_many_values(many(piece, VALUES_MAX + 1))
    assert not has_too_many_values(many(piece, VALUES_MAX // 10) + b" " * BYTES_MIN)


@pytest.mark.parametrize("text", ["a, [b], {c}, ", '", [" ', "\\", '\\"', "，", "\n,[{"])
def test_what_stands_inside_strings_is_no_value(text: str) -> None:
    said = json.dumps({"messages": [{"role": "user", "content": text * (3 * VALUES_MAX)}]}).encode()
    assert len(said) > BYTES_MIN
    assert not has_too_many_values(said)


@pytest.mark.parametrize("shift", range(7))
def test_the_border_of_a_piece_may_fall_anywhere(shift: int) -> None:
    said = " " * shift + json.dumps(['\\\\",' * 400_000, "x"])
    assert not has_too_many_values(said.encode(), values_max=10)
    assert has_too_many_values((said[:-1] + ',"y"' * 20 + "]").encode(), values_max=10)


def test_a_string_without_an_end_ends_with_the_body() -> None:
    assert not has_too_many_values(b'{"a": "' + b",[{" * VALUES_MAX)
    assert not has_too_many_values(b'{"a": "' + b",[{" * VALUES_MAX + b"\\")


def test_such_a_request_passes_through_and_says_why() -> None:
    wire = find_wire("POST", "/v1/chat/completions")
    assert wire is not None
    with pytest.raises(Unreadable) as refused:
        read_request(wire, many("[],", VALUES_MAX + 1))
    assert refused.value.reason.code == "too-many-values"
