"""Rudel's `convert`: every picture decoded to its end, two shards flushed to the disk, and a description of them."""

from pathlib import Path

import images_job

from rudel.data.images.convert import convert


def _convert(out: Path) -> int:
    return convert(images_job.JOB["data"], out, validation=images_job.VALIDATION).records


if __name__ == "__main__":
    images_job.answer(_convert)
