"""A look at the headers of all images before training, so that broken ones do not end it later.

It finds what the first bytes show: files that are empty, cut short, of another format, too large.
What is broken further inside shows only when it is decoded; see `encoded_images`. The result is
kept in the user's cache folder, and holds as long as no file changes its size or its time.
"""

import concurrent.futures
import hashlib
import json
import os

import numpy as np
from absl import logging

from sparse_embed.common.failures import DataError
from sparse_embed.common.files import atomic_path, cache_folder
from sparse_embed.common.progress import progress_bar
from sparse_embed.common.reading import parse_json
from sparse_embed.datasets.encoded_images import EncodedImages
from sparse_embed.datasets.examples import Examples
from sparse_embed.datasets.image_headers import MAX_PIXELS

_FORMAT = 1  # of the cache; raise it when the check changes
_CHUNK = 512  # images that a thread checks at a time
_FEW = 1000  # images that are checked again each time, which takes no longer than the cache


def without_broken(examples: Examples) -> Examples:
    """Returns the examples whose image has a header that can be used.

    Args:
        examples: images of a source on disk. If its `on_error` is "raise", the first broken image
            raises DataError; if it is "skip", all broken ones are named in the log, counted, and
            left out.
    """
    source = examples.source
    if not isinstance(source, EncodedImages):
        raise ValueError(f"{examples.name}: expected encoded images on disk")
    failures = _failures(examples, source)
    if not failures:
        return examples
    count = f"{len(failures):,} of {len(examples):,} images are broken"
    if source.on_error == "raise" or len(failures) == len(examples):
        first = failures[min(failures)]
        raise DataError(f"{first} ({count}; on_error=skip leaves them out)")
    for row, reason in failures.items():
        source.report(row, reason)
    logging.warning("%s: %s and left out", examples.name, count)
    return examples.take(~np.isin(examples.rows, list(failures)))


def _failures(examples: Examples, source: EncodedImages) -> dict[int, str]:
    """Returns row -> reason, for each broken image, from the cache if it is there."""
    if len(examples) <= _FEW:
        return _check(examples, source)[0]
    path = cache_folder() / f"headers-{_fingerprint(examples, source)}.json"
    try:
        return {int(row): reason for row, reason in parse_json(path.read_text()).items()}
    except FileNotFoundError:
        pass
    except (OSError, ValueError, AttributeError) as error:
        logging.warning("%s: broken cache file, checking again: %s", path, error)
    failures, is_lasting = _check(examples, source)
    if is_lasting:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary:
                temporary.write_text(json.dumps(failures))
        except OSError as error:
            logging.warning("%s: the check of the images is not cached: %s", path, error)
    return failures


def _check(examples: Examples, source: EncodedImages) -> tuple[dict[int, str], bool]:
    """Checks all headers; returns row -> reason, and whether the next check would find the same."""

    def check(rows: list[int]) -> dict[int, ValueError | OSError]:
        found = ((row, _error(source, row)) for row in rows)
        return {row: error for row, error in found if error is not None}

    chunks = [
        examples.rows[start : start + _CHUNK].tolist() for start in range(0, len(examples), _CHUNK)
    ]
    errors: dict[int, ValueError | OSError] = {}
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        progress_bar(
            total=len(examples),
            desc=f"headers of {examples.name}",
            unit=" images",
            disable=len(examples) <= _FEW,
        ) as progress,
    ):
        for rows, found in zip(chunks, pool.map(check, chunks), strict=True):
            errors |= found
            progress.update(len(rows))
    # An error of the file system may be gone next time.
    is_lasting = not any(isinstance(error, OSError) for error in errors.values())
    return {row: str(error) for row, error in errors.items()}, is_lasting


def _error(source: EncodedImages, row: int) -> ValueError | OSError | None:
    try:
        source.check_header(row)
    except (ValueError, OSError) as error:
        return error
    return None


def _fingerprint(examples: Examples, source: EncodedImages) -> str:
    """Returns a hash of all that the result of the check depends on."""
    digest = hashlib.sha256(
        f"{_FORMAT} {MAX_PIXELS} {type(source).__name__} {source.size}".encode()
        + examples.rows.tobytes()
        + examples.labels.tobytes()
    )
    for path in source.files:
        digest.update(b"\0".join([b"", os.fsencode(os.path.abspath(path)), _stamp(path)]))
    return digest.hexdigest()[:32]


def _stamp(path: str | os.PathLike[str]) -> bytes:
    try:
        status = os.stat(path)
    except OSError:
        return b"absent"
    return f"{status.st_size} {status.st_mtime_ns}".encode()
