"""Decoding of HTTP bodies by content encoding, within a size limit."""

import gzip
import zlib

import pytest

from talaria.http_client.connection import decode_content

TEXT = b"bread and butter " * 1000


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(TEXT)),
        (" GZIP ", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])),
        ("gzip", gzip.compress(TEXT) + b"\0"),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("identity", TEXT),
        ("", TEXT),
        ("x-unknown", TEXT),
    ],
    ids=["gzip", "two members", "padded", "zlib", "raw", "identity", "none", "unknown"],
)
def test_bodies_are_decoded(encoding: str, body: bytes) -> None:
    assert decode_content(body, encoding, 1_000_000).startswith(TEXT)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", ""])
def test_output_is_cut_one_byte_after_the_limit(encoding: str) -> None:
    bomb = b"a" * 10_000_000
    body = {"gzip": gzip.compress(bomb), "deflate": zlib.compress(bomb), "": bomb}[encoding]
    assert decode_content(body, encoding, 5000) == b"a" * 5001


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", b"no gzip"), ("deflate", zlib.compress(TEXT)[:-20]), ("br", b"\x0b"), ("zstd", b"\x28")],
    ids=["gzip", "deflate", "br", "zstd"],
)
def test_corrupt_and_unsupported_bodies_are_refused(encoding: str, body: bytes) -> None:
    with pytest.raises(ValueError, match=r"gzip|deflate|not supported"):
        decode_content(body, encoding, 1_000_000)


def test_a_body_exactly_at_the_limit_is_complete() -> None:
    assert decode_content(zlib.compress(TEXT), "deflate", len(TEXT)) == TEXT
